package storetest

import (
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

var crashTests = []test{
	{name: "ExpiredLeaseIsRecovered", run: testRecovered},
	{name: "AloneIsCharged", run: testAlone},
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

// A lease that runs out on a row that was alone in its claim costs that row an attempt.
func testAlone(t *table) {
	id := t.add(t.keys(1)...)[0]
	for crash := range 4 {
		batch := t.claim()
		require.Equal(t, []int64{id}, taken(batch))
		assert.Equal(t, crash, batch.Messages[0].Crashes)
		assert.Equal(t, crash, batch.Messages[0].Attempts)
		t.expire(id)
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
