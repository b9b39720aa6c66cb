package storetest

import (
	"slices"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/driver"
)

var crashTests = []test{
	{name: "ExpiredLeaseIsRecovered", run: testRecovered},
	{name: "AloneIsCharged", run: testAlone},
	{name: "AloneBesideOthersIsNotCharged", run: testAloneBesideOthers},
	{name: "RowsOfACrashAreClaimedInIsolation", run: testCrashIsolation},
	{name: "CrashIsolationKeepsTheOrderOfAKey", run: testCrashIsolationInOrder},
	{name: "CrashIsolationBehindAnotherRow", run: testCrashIsolationBehind},
	{name: "OnlyThePoisonIsCharged", run: func(t *table) { testPoison(t, false) }},
	{name: "OnlyThePoisonIsChargedUnordered", run: func(t *table) { testPoison(t, true) }},
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

func testCrashIsolation(t *table) {
	k := t.keys(4)
	ids := t.add(k[0], k[1])
	require.Equal(t, ids, taken(t.claim()))
	t.expire(ids...)
	fresh := t.add(k[2], k[3])
	assert.Equal(t, ids[:1], taken(t.claim(limit(2))), "those of the crash first, they are older, and by half")
	assert.Equal(t, ids[1:], taken(t.claim(limit(2))))
	assert.Equal(t, fresh, taken(t.claim(limit(2))))
}

// A row of a key that was lost is not claimed together with an earlier one that was not.
func testCrashIsolationBehind(t *table) {
	k := t.keys(2)
	ids := t.add(k[0], k[0], k[1])
	batch := t.claim(limit(2))
	require.Equal(t, ids[:2], taken(batch))
	s := &driver.Completion{Lease: batch.Lease, Other: []driver.Outcome{{ID: ids[0], Status: outbox.StatusFailed, Spent: true}}}
	require.Zero(t, t.complete(s).Lost)
	t.expire(ids[1])
	batch = t.claim()
	assert.Equal(t, []int64{ids[0], ids[2]}, taken(batch), "the second row is claimed in isolation")
	t.publish(batch)
	batch = t.claim()
	assert.Equal(t, ids[1:2], taken(batch))
	assert.Equal(t, 1, batch.Messages[0].Crashes)
}

// Rows of one key can differ in how often they were lost. The order of the key comes first.
func testCrashIsolationInOrder(t *table) {
	k := t.keys(2)
	ids := t.add(k[0], k[0], k[1], k[0])
	require.Equal(t, ids[:1], taken(t.claim(limit(1))))
	t.expire(ids[0])
	assert.Equal(t, ids[:1], taken(t.claim()), "the lost head alone; its followers wait for it")
	assert.Equal(t, ids[2:3], taken(t.claim()))
	t.expire(ids[0], ids[2])

	// A row of the crash behind a fresh head of its key waits for that head.
	t.exec("UPDATE {t} SET status = 'pending', crashes = 0, locked_until = NULL, lock_token = NULL WHERE id = ?", ids[0])
	t.exec("UPDATE {t} SET crashes = 3 WHERE id = ?", ids[1])
	batch := t.claim()
	assert.Equal(t, ids[:1], taken(batch))
	t.publish(batch)
	assert.Equal(t, ids[1:2], taken(t.claim()))
}

// One message kills every process that sends it. It is found by halving, and nobody else pays for
// it.
func testPoison(t *table, isUnordered bool) {
	const rows, maxAttempts = 500, 5
	change := func(c *driver.Claim) { c.Limit, c.Window, c.Unordered = rows, rows, isUnordered }
	k := t.keys(40)
	keys := make([]string, 0, rows)
	for n := range rows {
		keys = append(keys, k[n*n%len(k)])
	}
	ids := t.add(keys...)
	poison := ids[rows*2/3]
	claims, crashes := 0, 0
	for t.count(outbox.StatusPublished) < rows-1 || t.count(outbox.StatusAbandoned) < 1 {
		claims++
		require.Less(t, claims, 200, "the poison must be found")
		batch := t.claim(change)
		require.NotEmpty(t, batch.Messages)
		s := &driver.Completion{Lease: batch.Lease}
		for _, m := range batch.Messages {
			if m.ID != poison {
				require.Zero(t, m.Attempts, "row %d shared a claim with the poison and pays for it", m.ID)
			}
			switch {
			case m.Attempts >= maxAttempts:
				s.Other = append(s.Other, driver.Outcome{ID: m.ID, Status: outbox.StatusAbandoned})
			default:
				s.Published = append(s.Published, driver.Delivered{ID: m.ID})
			}
		}
		if slices.Contains(taken(batch), poison) && len(s.Other) == 0 {
			crashes++
			t.exec("UPDATE {t} SET locked_until = "+t.sql.minus("locked_until", 2*lease)+" WHERE "+t.sql.text("lock_token")+" = ?", batch.Lease.Token.String())
			continue
		}
		require.Zero(t, t.complete(s).Lost)
	}
	assert.Equal(t, "abandoned", t.state(poison).Status)
	assert.LessOrEqual(t, crashes, 10+maxAttempts, "500, 250, 125 ... 1, and then alone")
}

// Once a row's fate is known nobody died of it.
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

	// The count of the claim holds for a claim of one, too: a token nobody knows changes nothing.
	require.Equal(t, 1, t.complete(&driver.Completion{
		Lease:     driver.Lease{Broker: broker, Shard: t.shard, Token: uuid.New(), FirstID: ids[0], LastID: ids[2]},
		Published: []driver.Delivered{{ID: ids[1]}},
	}).Lost)
}
