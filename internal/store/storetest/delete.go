package storetest

import (
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// Rows that are removed as their broker confirms them (keep: false).
var deleteTests = []test{
	{name: "Published", run: testDeletePublished},
	{name: "Mixed", run: testDeleteMixed},
	{name: "Fence", run: testDeleteFence},
	{name: "Twice", run: testDeleteTwice},
	{name: "LateButStillOurs", run: testDeleteLate},
	{name: "ThenClaim", run: testDeleteThenClaim},
	{name: "StandsWhenTheClaimFails", run: testDeleteStands},
	{name: "FollowersGoOn", run: testDeleteFollowers},
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

func testDeletePublished(t *table) {
	ids := t.add(t.keys(3)...)
	batch := t.claim(limit(2))
	require.Equal(t, ids[:2], taken(batch))
	require.Zero(t, t.complete(deleted(batch)).Lost)
	assert.Equal(t, ids[2:], t.rows())
	assert.Equal(t, state{Status: "pending"}, t.state(ids[2]), "what was not claimed is as it was")
}

// One completion removes what was published, and writes every other outcome as ever.
func testDeleteMixed(t *table) {
	ids := t.add(t.keys(5)...)
	s := &driver.Completion{Lease: t.claim().Lease, DeletePublished: true, BlockAbandoned: true}
	s.Published = []driver.Delivered{{ID: ids[4], BrokerMessageID: "4"}, {ID: ids[0]}} // in any order
	s.Other = []driver.Outcome{
		{ID: ids[3], Status: outbox.StatusPending},
		{ID: ids[1], Status: outbox.StatusFailed, Spent: true, Delay: time.Hour},
		{ID: ids[2], Status: outbox.StatusAbandoned, Spent: true},
	}
	require.Zero(t, t.complete(s).Lost)
	require.Equal(t, ids[1:4], t.rows())
	for n, want := range []string{"failed", "abandoned", "pending"} {
		assert.Equal(t, want, t.state(ids[1+n]).Status)
	}
	assert.Equal(t, ids[2:3], t.ids("SELECT block_id FROM {t}_key_blocks"))
}

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
	require.Equal(t, ids, t.rows())
	require.Zero(t, t.complete(deleted(t.claim())).Lost)
	assert.Empty(t, t.rows())
}

// A completion whose answer was lost is sent again, and so is one for rows that are gone.
func testDeleteTwice(t *table) {
	ids := t.add(t.keys(2)...)
	s := retryLater(t.claim(), ids[1])
	s.DeletePublished = true
	require.Zero(t, t.complete(s).Lost)
	before := t.state(ids[1])
	assert.Equal(t, 2, t.complete(s).Lost)
	assert.Equal(t, before.Attempts, t.state(ids[1]).Attempts)
	assert.Equal(t, ids[1:], t.rows())
}

func testDeleteLate(t *table) {
	ids := t.add(t.keys(1)...)
	batch := t.claim()
	t.expire(ids...)
	require.Zero(t, t.complete(deleted(batch)).Lost, "as long as no other worker has claimed the row, the outcome is true")
	assert.Empty(t, t.rows())
	for _, o := range []driver.Outcome{{Status: outbox.StatusFailed, Spent: true}, {Status: outbox.StatusAbandoned}} {
		assert.Equal(t, 1, t.complete(outcome(batch, o)).Lost)
	}
	kept, err := t.Store.Renew(t.Context(), batch.Lease)
	require.NoError(t, err)
	assert.Zero(t, kept)
}

// Claims are the same as where rows are marked: the claim of the same exchange goes on behind what is gone.
func testDeleteThenClaim(t *table) {
	for _, isUnordered := range []bool{false, true} {
		change := func(c *driver.Claim) { c.Unordered = isUnordered }
		k := t.keys(2)
		ids := t.add(k[0], k[0], k[1], k[0])
		batch := t.claim(limit(2), change)
		require.Equal(t, ids[:2], taken(batch))
		result, err := t.Store.Exchange(t.Context(), deleted(batch), t.request(change))
		require.NoError(t, err)
		require.Equal(t, &driver.Completed{}, result.Completed)
		require.Equal(t, ids[2:], taken(result.Batch))
		require.Zero(t, t.complete(deleted(result.Batch)).Lost)
		assert.Empty(t, t.rows())
		assert.Empty(t, t.ready())
	}
}

// A removal is durable on its own.
func testDeleteStands(t *table) {
	for _, statement := range t.sql.refuseWorker {
		t.exec(statement)
	}
	refused := func(c *driver.Claim) { c.Worker = "refused" }
	k := t.keys(2)
	ids := t.add(k...)
	result, err := t.Store.Exchange(t.Context(), deleted(t.claim(limit(1))), t.request(refused))
	require.ErrorContains(t, err, "refused by the test")
	require.Equal(t, &driver.Completed{}, result.Completed)
	assert.Equal(t, ids[1:], t.rows())
}

// What was deferred behind a row goes on when that row is gone, in its order.
func testDeleteFollowers(t *table) {
	k := t.keys(1)
	ids := t.add(k[0], k[0], k[0])
	t.failHead(ids[0])
	require.Equal(t, 3, t.deferRows())
	t.pass()
	batch := t.claim(wake)
	require.Equal(t, ids[:1], taken(batch), "its followers wait until it is done")
	require.Zero(t, t.complete(deleted(batch)).Lost)
	assert.Equal(t, 2, t.deferred())
	assert.NotEmpty(t, t.ready(), "a block whose row is gone is done")
	batch = t.claim(wake)
	require.Equal(t, ids[1:], taken(batch))
	require.Zero(t, t.complete(deleted(batch)).Lost)
	require.Empty(t, t.claim(wake).Messages)
	assert.Empty(t, t.rows())
	assert.Zero(t, t.blocks(), "nothing is left of the key")
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
