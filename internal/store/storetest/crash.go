package storetest

import (
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

var crashTests = []test{
	{name: "ExpiredLeaseIsRecovered", run: testRecovered},
	{name: "AloneBesideOthersIsNotCharged", run: testAloneBesideOthers},
	{name: "OutcomeEndsSuspicion", run: testOutcomeEndsSuspicion},
}

func testRecovered(t *table) {
	for _, isUnordered := range []bool{false, true} {
		change := func(c *driver.Claim) { c.Limit, c.Unordered = 2, isUnordered }
		ids := t.add(t.keys(2)...)
		first := t.claim(change)
		require.Equal(t, ids, taken(first))
		assert.Empty(t, t.claim(change).Messages)
		t.expire(ids...)
		second := t.claim(change)
		require.Equal(t, ids[:1], taken(second), "half of what was lost")
		assert.Equal(t, 1, second.Messages[0].Crashes)
		assert.Zero(t, second.Messages[0].Attempts, "two rows shared the blame")
		assert.NotEqual(t, first.Lease.Token, second.Lease.Token)
		third := t.claim(change)
		require.Equal(t, ids[1:], taken(third))
		t.publish(second)
		t.publish(third)
	}
}

// Where others of the process may have claimed rows, one of theirs can be to blame.
func testAloneBesideOthers(t *table) {
	for _, isUnordered := range []bool{false, true} {
		id := t.add(t.keys(1)...)[0]
		for crash, c := range []struct {
			shared   bool
			attempts int // that the claims before have cost
		}{{true, 0}, {true, 0}, {false, 0}, {true, 1}, {false, 1}, {true, 2}} {
			batch := t.claim(func(claim *driver.Claim) { claim.Shared, claim.Unordered = c.shared, isUnordered })
			require.Equal(t, []int64{id}, taken(batch))
			assert.Equal(t, crash, batch.Messages[0].Crashes)
			assert.Equal(t, c.attempts, batch.Messages[0].Attempts, "after %d crashes, unordered %t", crash, isUnordered)
			t.expire(id)
		}
		t.publish(t.claim())
	}
}

// Once a row's outcome is known, no process crashed with it.
func testOutcomeEndsSuspicion(t *table) {
	k := t.keys(3)
	ids := t.add(k...)
	require.Len(t, t.claim().Messages, 3)
	t.expire(ids...)
	batch := t.claim(limit(2))
	require.Equal(t, ids[:1], taken(batch))
	require.Zero(t, t.complete(outcome(batch, driver.Outcome{Status: outbox.StatusPending})).Lost)
	assert.Equal(t, 1, t.state(ids[0]).Crashes, "released unsent: still isolated")

	batch = t.claim(limit(2))
	require.Equal(t, ids[:1], taken(batch))
	assert.Zero(t, batch.Messages[0].Attempts, "a release is no crash, though it was alone")
	require.Zero(t, t.complete(outcome(batch, driver.Outcome{Status: outbox.StatusFailed, Spent: true})).Lost)
	assert.Equal(t, state{Status: "failed", Attempts: 1}, t.state(ids[0]))

	// The count of the claim holds for a claim of one, too: an unknown token changes nothing.
	require.Equal(t, 1, t.complete(&driver.Completion{
		Lease:     driver.Lease{Broker: broker, Shard: t.shard, Token: uuid.New(), FirstID: ids[0], LastID: ids[2]},
		Published: []driver.Delivered{{ID: ids[1]}},
	}).Lost)
}

// Keys that are blocked behind an abandoned row, beside other rows of the key.
var abandonTests = []test{
	{name: "KeyGoesOn", run: testAbandonKeyGoesOn},
}

// A row that has expired by its own contract blocks nothing; one behind it that was refused does.
func testAbandonKeyGoesOn(t *table) {
	k := t.keys(2)
	ids := t.add(k[0], k[0], k[0], k[1], k[1])
	batch := t.claim()
	require.Equal(t, ids, taken(batch))
	s := outcome(batch, driver.Outcome{Status: outbox.StatusAbandoned})
	s.Other[0].KeyGoesOn, s.Other[3].KeyGoesOn = true, true
	s.Other[2].Status, s.Other[4].Status = outbox.StatusPending, outbox.StatusPending
	s.BlockAbandoned = true
	require.Zero(t, t.complete(s).Lost)
	assert.Equal(t, ids[1:2], t.ids("SELECT block_id FROM {t}_key_blocks"))
	assert.Equal(t, ids[4:], taken(t.claim(wake)))
}

var aloneTests = []test{
	{name: "AnyOpenRowCounts", run: testOnlyRow},
	{name: "OfAStream", run: testOnlyRowOfAStream},
}

func (t *table) alone(stream string, id int64) bool {
	t.Helper()
	alone, err := t.Store.Alone(t.Context(), broker, stream, id)
	require.NoError(t, err)
	return alone
}

// A row is alone where no other of its broker is open, in whatever status, shard and queue that is.
func testOnlyRow(t *table) {
	one := newRow("")
	stream, id := one.Stream, t.insert(one)[0]
	elsewhere := newRow("")
	elsewhere.TargetBroker = "another"
	t.insert(elsewhere)
	beside := func(row browsed) int64 {
		rows := []browsed{row}
		rows[0].broker, rows[0].created, rows[0].finished = broker, time.Now(), time.Now()
		rows[0].eventType = "T"
		t.write(rows)
		return rows[0].id
	}
	assert.True(t, t.alone("", id))
	assert.True(t, t.alone(stream, id))
	beside(browsed{status: outbox.StatusPublished})
	beside(browsed{status: outbox.StatusAbandoned})
	assert.True(t, t.alone("", id), "what is finished does not count")
	for _, other := range []browsed{
		{status: outbox.StatusPending},
		{status: outbox.StatusProcessing},
		{status: outbox.StatusFailed, class: "retryable"},
		{status: outbox.StatusPending, key: "k"},
		{status: outbox.StatusPending, deferred: true},
		{status: outbox.StatusFailed, class: "x", key: "k", deferred: true},
	} {
		otherID := beside(other)
		assert.False(t, t.alone("", id), "%+v", other)
		assert.False(t, t.alone(stream, id), "%+v", other)
		assert.False(t, t.alone("", otherID), "%+v", other)
		t.exec("DELETE FROM {t} WHERE id = ?", otherID)
		assert.True(t, t.alone("", id))
		assert.True(t, t.alone(stream, id))
	}
}

// Rows for other streams do not count where one is asked for, up to a number.
func testOnlyRowOfAStream(t *table) {
	one, other := newRow("k"), newRow("k")
	other.Stream = "other"
	id := t.insert(one)[0]
	rows := make([]outbox.Row, 100)
	for i := range rows {
		rows[i] = other
		rows[i].MessageID = newRow("").MessageID
	}
	ids := t.insert(rows...)
	t.exec("UPDATE {t} SET deferred = "+t.sql.yes+" WHERE id > ?", ids[50])
	assert.True(t, t.alone(one.Stream, id))
	assert.False(t, t.alone("", id))
	assert.False(t, t.alone(other.Stream, ids[0]))
	t.exec("UPDATE {t} SET stream = ? WHERE id = ?", one.Stream, ids[99])
	assert.False(t, t.alone(one.Stream, id), "a deferred one")
	assert.False(t, t.alone(one.Stream, ids[99]))
	t.exec("DELETE FROM {t} WHERE id = ?", id)
	assert.True(t, t.alone(one.Stream, ids[99]))
}
