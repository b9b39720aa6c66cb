package storetest

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// Keys that are blocked behind an abandoned row, beside other rows of the key.
var abandonTests = []test{
	{name: "TwoRowsOfAKey", run: testAbandonTwo},
	{name: "BesideAnotherKey", run: testAbandonBeside},
	{name: "KeyGoesOn", run: testAbandonKeyGoesOn},
	{name: "LateWordGivesBackTheBlockOfBefore", run: testAbandonLate},
}

// Two rows of one key are abandoned at once. The first of them is the block.
func testAbandonTwo(t *table) {
	k := t.keys(2)
	ids := t.add(k[0], k[0], k[0], k[1])
	batch := t.claim()
	require.Equal(t, ids, taken(batch))
	s := outcome(batch, driver.Outcome{Status: outbox.StatusAbandoned, Spent: true})
	s.Other[2].Status, s.Other[2].Spent = outbox.StatusPending, false
	s.BlockAbandoned = true
	require.Zero(t, t.complete(s).Lost)
	assert.Equal(t, ids[:1], t.ids("SELECT block_id FROM {t}_key_blocks WHERE ordering_key = ?", k[0]))
	assert.Equal(t, ids[3:], t.ids("SELECT block_id FROM {t}_key_blocks WHERE ordering_key = ?", k[1]))
	assert.Empty(t, t.claim(wake).Messages)
}

// What is deferred behind one of two rows that are abandoned at once, and before the other one, stays where
// it is.
func testAbandonBeside(t *table) {
	k := t.keys(2)
	ids := t.add(k[0], k[0])
	t.failHead(ids[0])
	require.Equal(t, 2, t.deferRows())
	t.pass()
	batch := t.claim(wake)
	require.Equal(t, ids[:1], taken(batch))
	require.Zero(t, t.complete(outcome(batch, driver.Outcome{Status: outbox.StatusPending})).Lost)
	ids = append(ids, t.add(k[1])...)
	batch = t.claim(wake)
	require.Equal(t, []int64{ids[0], ids[2]}, taken(batch))
	require.Zero(t, t.complete(blocking(batch)).Lost)
	assert.Equal(t, 2, t.blocks())
	assert.Equal(t, 1, t.deferred())
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

// An owner that was stopped abandons the second row of its batch. Its first one was taken over
// meanwhile, has failed, and waits as the block of the key. It is not to wait for the operator who
// is needed for the second one.
func testAbandonLate(t *table) {
	k := t.keys(1)[0]
	ids := t.add(k, k, k)
	late := t.claim(limit(2))
	require.Equal(t, ids[:2], taken(late))
	t.expire(ids[0], ids[1])
	batch := t.claimBy(t.another(), limit(2))
	require.Equal(t, ids[:1], taken(batch))
	require.Zero(t, t.complete(retryLater(batch, ids[0])).Lost)
	require.NotZero(t, t.deferRows())

	s := &driver.Completion{Lease: late.Lease, BlockAbandoned: true, Published: []driver.Delivered{{ID: ids[0]}}, Other: []driver.Outcome{
		{ID: ids[1], Status: outbox.StatusAbandoned, Spent: true},
	}}
	require.Equal(t, 1, t.complete(s).Lost)
	assert.Empty(t, t.claim(wake).Messages, "it waits for its time")
	t.pass()
	assert.Equal(t, []int{t.shard}, t.ready())
	batch = t.claim(wake)
	require.Equal(t, ids[:1], taken(batch))
	t.publish(batch)
	assert.Empty(t, t.claim(wake).Messages, "the third one waits for an operator")
	t.deferRows()
	assert.Empty(t, t.ready())
}
