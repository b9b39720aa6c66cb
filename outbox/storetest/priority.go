package storetest

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/driver"
)

var priorityTests = []test{
	{name: "ShardsOfTheirOwn", run: testPriorityShards},
	{name: "BackfillWaitsForEarlierRows", run: testPriorityBackfillWaits},
	{name: "BackfillIsNotStarvedByWaitingRows", run: testPriorityBackfillGoesOn},
	{name: "BackfillIsNotStarvedByRowsBehindABlock", run: testPriorityAheadBehindBlock},
	{name: "BackfillIsNotStarvedByItsOwnKind", run: testPriorityAheadOfLow},
	{name: "NormalShardFullOfRowsBehindALowOne", run: testPriorityBehindLow},
	{name: "BlocksHoldEveryClass", run: testPriorityBlocks},
}

func class(c outbox.Class) func(*table) func(*driver.Claim) {
	return func(t *table) func(*driver.Claim) {
		return func(claim *driver.Claim) { claim.Shard = t.shard + int(c)*t.Store.Shards() }
	}
}

var (
	backfill = class(outbox.ClassBackfill)
	urgent   = class(outbox.ClassUrgent)
)

func (t *table) addWith(priority int, keys ...string) []int64 {
	t.Helper()
	rows := make([]outbox.Row, len(keys))
	for i, key := range keys {
		rows[i] = newRow(key)
		rows[i].Priority = priority
	}
	return t.insert(rows...)
}

func testPriorityShards(t *table) {
	k := t.keys(3)
	low, normal, high := t.addWith(-1, k[0]), t.addWith(0, k[1]), t.addWith(100, k[2])
	loose := t.addWith(1, "")
	shards := t.Store.Shards()
	assert.Equal(t, t.shard+shards, t.shardOf(low[0]))
	assert.Equal(t, t.shard, t.shardOf(normal[0]))
	assert.Equal(t, t.shard, t.shardOf(high[0]), "a row with a key cannot overtake the earlier ones of its key")
	assert.Equal(t, 2*shards, t.shardOf(loose[0])/shards*shards)
	assert.Equal(t, append(normal, high...), taken(t.claim()))
	assert.Equal(t, low, taken(t.claim(backfill(t))))
	assert.Contains(t, t.ready(), t.shardOf(loose[0]))
	t.shard = t.shardOf(loose[0]) % shards
	assert.Equal(t, loose, taken(t.claim(urgent(t))))
}

// Rows with a key wait until the normal shard is done with everything earlier, whatever its key:
// only so is nothing of their own key before them. Rows without a key wait for nothing.
func testPriorityBackfillWaits(t *table) {
	k := t.keys(2)
	normal := t.addWith(0, k[0])
	low := t.addWith(-1, k[1])
	assert.Empty(t, t.claim(backfill(t)).Messages)
	later := t.addWith(0, k[0])
	batch := t.claim(limit(1))
	require.Equal(t, normal, taken(batch))
	assert.Empty(t, t.claim(backfill(t)).Messages)
	t.publish(batch)
	assert.Equal(t, low, taken(t.claim(backfill(t))), "later rows are not in its way")
	assert.Equal(t, later, taken(t.claim()))
}

func testPriorityBackfillGoesOn(t *table) {
	k := t.keys(2)
	normal := t.addWith(0, k[0])
	low := t.addWith(-1, k[1], k[0])
	t.failHead(normal[0])
	batch := t.claim(backfill(t))
	assert.Empty(t, batch.Messages)
	assert.True(t, batch.AheadWaits)
	assert.Equal(t, 1, t.deferRows())
	batch = t.claim(backfill(t), wake)
	assert.Equal(t, low[:1], taken(batch), "but not the one whose own key waits")
	assert.False(t, batch.AheadWaits)
	t.pass()
	batch = t.claim(wake)
	assert.Equal(t, normal, taken(batch))
	t.publish(batch)
	assert.Equal(t, []int{t.shard}, t.ready()[:1], "the block is done")
	assert.Empty(t, t.claim(wake).Messages)
	assert.Equal(t, low[1:], taken(t.claim(backfill(t))))
}

// A block in one class holds the later rows of its key in the others.
func testPriorityBlocks(t *table) {
	k := t.keys(1)[0]
	low := t.addWith(-1, k)
	batch := t.claim(backfill(t))
	require.Equal(t, low, taken(batch))
	require.Zero(t, t.complete(retryLater(batch, low...)).Lost)
	normal := t.addWith(0, k)
	again := t.addWith(-1, k)
	require.Equal(t, 2, t.deferRows(backfill(t)))
	assert.Empty(t, t.claim(wake).Messages)
	assert.Equal(t, 1, t.deferRows(), "the normal one is behind the block too")
	t.pass()
	batch = t.claim(backfill(t), wake)
	require.Equal(t, low, taken(batch))
	t.publish(batch)
	assert.Equal(t, low[:0], taken(t.claim(wake)), "the block stood in the other shard, which has to be asked")
	batch = t.claim(backfill(t), wake)
	assert.Empty(t, batch.Messages, "the normal row comes first")
	batch = t.claim(wake)
	require.Equal(t, normal, taken(batch))
	t.publish(batch)
	assert.Equal(t, again, taken(t.claim(backfill(t), wake)))
}

// The first row of the normal shard stands behind a block, perhaps one that only an operator opens.
func testPriorityAheadBehindBlock(t *table) {
	k := t.keys(2)
	block := t.add(k[0])
	t.failHead(block[0])
	require.Equal(t, 1, t.deferRows())
	late := t.add(k[0])
	low := t.addWith(-1, k[1])
	batch := t.claim(backfill(t))
	assert.Empty(t, batch.Messages)
	assert.True(t, batch.AheadWaits)
	assert.Equal(t, 1, t.deferRows())
	batch = t.claim(backfill(t))
	assert.Equal(t, low, taken(batch))
	assert.False(t, batch.AheadWaits)
	t.pass()
	t.publish(t.claim(wake))
	assert.Equal(t, late, taken(t.claim(wake)))
}

// The first row of the normal shard waits for one of low priority, and that one for its time.
func testPriorityAheadOfLow(t *table) {
	k := t.keys(2)
	low := t.addWith(-1, k[0])
	batch := t.claim(backfill(t))
	require.Equal(t, low, taken(batch))
	require.Zero(t, t.complete(retryLater(batch, low...)).Lost)
	normal := t.add(k[0])
	other := t.addWith(-1, k[1])
	assert.True(t, t.claim().AheadWaits, "rows of the normal shard wait for it, too")
	batch = t.claim(backfill(t))
	assert.Empty(t, batch.Messages)
	assert.True(t, batch.AheadWaits)
	assert.Equal(t, 1, t.deferRows(backfill(t)))
	assert.Equal(t, 1, t.deferRows())
	assert.Equal(t, other, taken(t.claim(backfill(t))))
	assert.False(t, t.claim(wake).AheadWaits)
	t.pass()
	batch = t.claim(backfill(t), wake)
	require.Equal(t, low, taken(batch))
	t.publish(batch)
	assert.Empty(t, t.claim(backfill(t), wake).Messages)
	assert.Equal(t, normal, taken(t.claim()))
}

// However many rows of the normal shard wait for one of low priority, they do not hold up other
// keys.
func testPriorityBehindLow(t *table) {
	k := t.keys(2)
	low := t.addWith(-1, k[0])
	batch := t.claim(backfill(t))
	require.Equal(t, low, taken(batch))
	require.Zero(t, t.complete(retryLater(batch, low...)).Lost)
	held := t.add(k[0], k[0], k[0])
	other := t.add(k[1])
	batch = t.claim(limit(3), window(3))
	assert.Empty(t, batch.Messages)
	assert.Equal(t, 3, batch.Waiting)
	assert.True(t, batch.AheadWaits)
	assert.Equal(t, 1, t.deferRows(backfill(t)))
	assert.Equal(t, 3, t.deferRows())
	assert.Equal(t, other, taken(t.claim(limit(3), window(3))))
	t.pass()
	t.publish(t.claim(backfill(t), wake))
	t.claim(backfill(t), wake)
	assert.Equal(t, held, taken(t.claim()))
}
