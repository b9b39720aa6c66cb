package storetest

import (
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

var priorityTests = []test{
	{name: "ShardsOfTheirOwn", run: testPriorityShards},
	{name: "FullBatchesOfEachClass", run: testPriorityFullBatches},
	{name: "KeyInTwoClassesForOperators", run: testPriorityOperators},
	{name: "Apart", run: testPriorityApart},
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

// However few keys have rows in both classes, each claim takes as many rows as it may: a mixture costs
// no more claims than rows that are all alike.
func testPriorityFullBatches(t *table) {
	const batches, size = 4, 10
	rows := make([]outbox.Row, 2*batches*size)
	for i := range rows {
		rows[i] = newRow(t.keys(2)[i/2%2])
		rows[i].Priority = -(i % 2)
	}
	t.insert(rows...)
	for range batches {
		for _, shard := range []func(*driver.Claim){backfill(t), func(*driver.Claim) {}} {
			batch := t.claim(shard, limit(size))
			require.Len(t, batch.Messages, size)
			t.publish(batch)
		}
	}
	assert.Equal(t, len(rows), t.count(outbox.StatusPublished))
}

// Both blocks of a key are listed, each with its own followers, and one word lets both go on.
func testPriorityOperators(t *table) {
	k := t.keys(1)[0]
	normal, low := t.addWith(0, k), t.addWith(-1, k)
	for _, shard := range []func(*driver.Claim){func(*driver.Claim) {}, backfill(t)} {
		batch := t.claim(shard)
		require.Len(t, batch.Messages, 1)
		require.Zero(t, t.complete(blocking(batch)).Lost)
	}
	behind := append(t.addWith(0, k, k), t.addWith(-1, k)...)
	keys, err := t.Store.KeyBlocks(t.Context(), broker, 10, 100)
	require.NoError(t, err)
	require.Len(t, keys.Keys, 2)
	counts := map[outbox.Class]int64{}
	for _, block := range keys.Keys {
		assert.Equal(t, k, block.Key)
		counts[block.Class] = block.Followers.N
	}
	assert.Equal(t, map[outbox.Class]int64{outbox.ClassNormal: 2, outbox.ClassBackfill: 1}, counts)
	list, err := t.Store.List(t.Context(), admin.ListRequest{Broker: broker, Status: outbox.StatusPending, Filter: admin.Filter{Key: k}, Limit: 10, Scan: 100})
	require.NoError(t, err)
	assert.Len(t, list.Records, len(behind), "those of both classes")
	assert.Equal(t, 1, t.requeue(t.these(low[0])), "the row of one of them")
	assert.Equal(t, low, taken(t.claim(backfill(t), wake)))
	assert.Empty(t, t.claim(wake).Messages, "the other one stays: %v", normal)
	require.True(t, t.release(k))
	assert.Equal(t, behind[:2], taken(t.claim(wake)))
}

// What is done about a key in one class, and said of it, is not about its rows in another; only the
// word that lets a key go on is.
func testPriorityApart(t *table) {
	k := t.keys(1)[0]
	low := t.addWith(-1, k, k)
	batch := t.claim(backfill(t), limit(1))
	require.Equal(t, low[:1], taken(batch))
	require.Zero(t, t.complete(retryLater(batch, low[0])).Lost)
	keys, err := t.Store.KeyBlocks(t.Context(), broker, 10, 100)
	require.NoError(t, err)
	require.Len(t, keys.Keys, 1)
	assert.Equal(t, outbox.ClassBackfill, keys.Keys[0].Class, "of a row that has failed and is not deferred")
	require.Equal(t, 2, t.deferRows(backfill(t)))

	normal := t.addWith(0, k, k)
	t.age(normal[0], "created_at", time.Hour)
	assert.Greater(t, t.backlog()[0].Lag, time.Minute, "it does not wait")
	t.abandonAndBlock(normal[0])
	assert.Equal(t, 2, t.deferred(), "rows before the new block, and of the other class")
	assert.Equal(t, 1, t.deferRows())
	list, err := t.Store.List(t.Context(), admin.ListRequest{Broker: broker, Status: outbox.StatusPending, Filter: admin.Filter{Key: k}, Limit: 10, Scan: 100})
	require.NoError(t, err)
	waitFor := map[int64]string{}
	for i := range list.Records {
		waitFor[list.Records[i].ID] = list.Records[i].Deferral.MessageID
	}
	assert.Equal(t, map[int64]string{normal[1]: t.messageID(normal[0]), low[1]: t.messageID(low[0])}, waitFor)

	t.pass()
	batch = t.claim(backfill(t), wake)
	require.Equal(t, low[:1], taken(batch))
	require.Zero(t, t.complete(blocking(batch)).Lost)
	require.Len(t, t.blockedKeys(), 2)
	require.True(t, t.release(k))
	assert.Equal(t, normal[1:], taken(t.claim(wake)))
	assert.Equal(t, low[1:], taken(t.claim(backfill(t), wake)))
}
