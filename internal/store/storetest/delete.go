package storetest

import (
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// Rows that are removed as their broker confirms them (keep: false).
var deleteTests = []test{
	{name: "Fence", run: testDeleteFence},
	{name: "StandsWhenTheClaimFails", run: testDeleteStands},
	{name: "EarlierRowsStay", run: testDeleteEarlier},
	{name: "WrittenAgain", run: testDeleteWrittenAgain},
}

// deleted is a completion of a batch whose rows are all confirmed, and not kept.
func deleted(batch driver.Batch) *driver.Completion {
	s := published(batch)
	s.DeletePublished = true
	return s
}

func (t *table) rows() []int64 { return t.ids("SELECT id FROM {t} ORDER BY id") }

// A worker that has lost its lease removes nothing, whoever has the row now.
func testDeleteFence(t *table) {
	ids := t.add(t.keys(1)...)
	late := t.claim()
	wrong := deleted(late)
	wrong.Lease.Token = uuid.New()
	assert.Equal(t, 1, t.complete(wrong).Lost)
	t.expire(ids...)
	owner := t.claimBy(t.another())
	require.Equal(t, ids, taken(owner))
	before := t.state(ids[0])
	assert.Equal(t, 1, t.complete(deleted(late)).Lost)
	after := t.state(ids[0])
	after.LockedFor = before.LockedFor
	assert.Equal(t, before, after)

	released := outcome(owner, driver.Outcome{Status: outbox.StatusPending})
	require.Zero(t, t.complete(released).Lost)
	assert.Equal(t, 1, t.complete(deleted(owner)).Lost, "nor what it has given back itself")
	batch := t.claim()
	t.exec("UPDATE {t} SET status = 'failed'") // by hand, so that the token stays
	assert.Equal(t, 1, t.complete(deleted(batch)).Lost)
	require.Equal(t, ids, t.rows())
	t.exec("UPDATE {t} SET status = 'processing'")
	require.Zero(t, t.complete(deleted(batch)).Lost)
	assert.Empty(t, t.rows())
}

// A removal is durable on its own.
func testDeleteStands(t *table) {
	for _, statement := range t.sql.refuseWorker {
		t.exec(statement)
	}
	ids := t.add(t.keys(2)...)
	result, err := t.Store.Exchange(t.Context(), deleted(t.claim(limit(1))), t.request(func(c *driver.Claim) { c.Worker = "refused" }))
	require.ErrorContains(t, err, "refused by the test")
	require.Equal(t, &driver.Completed{}, result.Completed)
	assert.Equal(t, ids[1:], t.rows())
}

// Rows that were published before stay until the purge, and can be replayed; abandoned rows stay, too.
func testDeleteEarlier(t *table) {
	k := t.keys(3)
	ids := t.add(k[:2]...)
	batch := t.claim()
	require.Equal(t, ids, taken(batch))
	require.Zero(t, t.complete(&driver.Completion{
		Lease: batch.Lease, Published: []driver.Delivered{{ID: ids[0]}}, Other: []driver.Outcome{{ID: ids[1], Status: outbox.StatusAbandoned}},
	}).Lost)
	t.add(k[2])
	require.Zero(t, t.complete(deleted(t.claim())).Lost)
	require.Equal(t, ids, t.rows())
	require.Equal(t, 1, t.replay(t.these(ids[0])))
	require.Equal(t, 1, t.requeue(t.these(ids[1])))
	batch = t.claim()
	require.Equal(t, ids, taken(batch))
	require.Zero(t, t.complete(deleted(batch)).Lost)
	assert.Empty(t, t.rows())
}

// Nothing is known any more of a message that is gone: whoever writes it again sends it again.
func testDeleteWrittenAgain(t *table) {
	row := newRow(t.keys(1)[0])
	first := t.insert(row)
	require.Zero(t, t.complete(deleted(t.claim())).Lost)
	again := t.insert(row)
	require.Greater(t, again[0], first[0], "an id is never given out again")
	records, err := t.Store.Message(t.Context(), row.MessageID.String())
	require.NoError(t, err)
	require.Len(t, records, 1)
	batch := t.claim()
	require.Equal(t, again, taken(batch))
	require.Zero(t, t.complete(deleted(batch)).Lost)
	found, err := t.Store.Find(t.Context(), admin.FindRequest{Term: row.MessageID.String(), Limit: 10})
	require.NoError(t, err)
	assert.Empty(t, found.Records)
}
