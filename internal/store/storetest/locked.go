package storetest

import (
	"slices"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// lockedTests have another session hold a row for as long as they last.
var lockedTests = []test{
	{name: "Claim", run: func(t *table) { testLockedHead(t, func([]int64) {}) }},
	{name: "ClaimWithADecision", run: func(t *table) {
		testLockedHead(t, func(ids []int64) { t.exec("UPDATE {t} SET crashes = 1 WHERE id = ?", ids[len(ids)-1]) })
	}},
	{name: "ClaimAroundIt", run: func(t *table) {
		testLockedHead(t, func([]int64) {}, func(c *driver.Claim) { c.AroundLocked = true })
	}},
	{name: "Wake", run: testLockedBlock},
	{name: "Free", run: testLockedFollower},
	{name: "Defer", run: testLockedWaiting},
	{name: "UnblockAKey", run: testLockedUnblock},
	{name: "CompletePublished", run: func(t *table) { testLockedCompletion(t, published) }},
	{name: "CompleteOther", run: func(t *table) {
		testLockedCompletion(t, func(batch driver.Batch) *driver.Completion {
			return outcome(batch, driver.Outcome{Status: outbox.StatusFailed, Spent: true})
		})
	}},
}

// oneHolds skips where no session can hold a row alone.
func (t *table) oneHolds() {
	if t.OneWriter {
		t.Skip("writers take turns on this database")
	}
}

// A key is unblocked beside a session that has locked its abandoned row.
func testLockedUnblock(t *table) {
	t.oneHolds()
	k := t.keys(1)[0]
	ids := t.add(k, k)
	t.abandonAndBlock(ids[0])
	t.outsider().scrub(ids[0])
	assert.True(t, t.release(k), "it waits for no row")
	t.next(ids[1])
}

// A row that another session has locked holds what is behind it of its key, and nothing else.
func testLockedHead(t *table, prepare func(ids []int64), change ...func(*driver.Claim)) {
	t.oneHolds()
	k := t.keys(3)
	ids := t.add(k[0], k[1], k[1], k[2], k[0])
	prepare(ids)
	session := t.outsider()
	session.scrub(ids[1])
	var got []int64
	for range 2 { // a row with a crash behind it comes alone
		batch := t.claim(change...)
		assert.Equal(t, 1, batch.Locked)
		got = append(got, taken(batch)...)
		t.publish(batch)
	}
	slices.Sort(got)
	assert.Equal(t, []int64{ids[0], ids[3], ids[4]}, got)
	require.NoError(t, session.tx.Commit())
	batch := t.claim(change...)
	assert.Equal(t, ids[1:3], taken(batch))
	assert.Zero(t, batch.Locked)
	assert.Zero(t, t.number("SELECT count(*) FROM {t} WHERE crashes > 1"), "nothing was claimed twice")
}

// Of blocks whose time has come one is locked: the others come back.
func testLockedBlock(t *table) {
	t.oneHolds()
	ids := t.waiting()
	require.Equal(t, len(ids), t.deferRows())
	t.pass()
	session := t.outsider()
	session.scrub(ids[3])
	var got []int64
	for range 4 {
		batch := t.claim(wake)
		got = append(got, taken(batch)...)
		t.publish(batch)
	}
	assert.Equal(t, slices.Concat(ids[:3], ids[4:]), got)
	require.NoError(t, session.tx.Commit())
	for range 2 {
		got = append(got, taken(t.claim(wake))...)
	}
	assert.Equal(t, slices.Concat(ids[:3], ids[4:], ids[3:4]), got)
}

// Of the followers of two blocks that are done one is locked: those of the other key come back, and all
// of its own key later, in order.
func testLockedFollower(t *table) {
	t.oneHolds()
	k := t.keys(2)
	ids := t.add(k[0], k[1], k[0], k[1], k[0], k[1])
	heads := t.claim(limit(2), wake)
	require.Equal(t, ids[:2], taken(heads))
	require.Zero(t, t.complete(retryLater(heads, ids[:2]...)).Lost)
	require.Equal(t, len(ids), t.deferRows())
	t.pass()
	heads = t.claim(wake)
	require.Equal(t, ids[:2], taken(heads))
	t.publish(heads)
	session := t.outsider()
	session.scrub(ids[4])
	var got []int64
	for range 4 {
		batch := t.claim(wake)
		got = append(got, taken(batch)...)
		t.publish(batch)
	}
	assert.Equal(t, []int64{ids[3], ids[5]}, got)
	require.NoError(t, session.tx.Commit())
	for range 3 {
		batch := t.claim(wake)
		got = append(got, taken(batch)...)
		t.publish(batch)
	}
	assert.Equal(t, []int64{ids[3], ids[5], ids[2], ids[4]}, got)
	assert.Zero(t, t.deferred())
	assert.Zero(t, t.blocks())
}

// Of rows that wait one is locked: the others leave the way of claims.
func testLockedWaiting(t *table) {
	t.oneHolds()
	ids := t.waiting()
	session := t.outsider()
	session.scrub(ids[3])
	assert.Equal(t, len(ids)-1, t.deferRows())
	require.NoError(t, session.tx.Commit())
	assert.Equal(t, 1, t.deferRows())
}

// A completion of which another session has locked a row says so, and has changed nothing.
func testLockedCompletion(t *table, completion func(driver.Batch) *driver.Completion) {
	t.oneHolds()
	batch, ids := t.claimSome()
	session := t.outsider()
	session.scrub(ids[3])
	_, err := t.Store.Exchange(t.Context(), completion(batch), nil)
	require.ErrorIs(t, err, driver.ErrLocked)
	assert.Equal(t, len(ids), t.count(outbox.StatusProcessing))
	require.NoError(t, session.tx.Commit())
	require.NoError(t, completes(completion(batch))(t.Store))
	assert.Zero(t, t.count(outbox.StatusProcessing))
	assert.Equal(t, int64(len(ids)), t.number("SELECT sum(attempts) FROM {t}"), "counted once")
}
