package storetest

import (
	"slices"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

var priorityTests = []test{
	{name: "ShardsOfTheirOwn", run: testPriorityShards},
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

// An operator gives rows that are not deferred another priority, among them the block of a key. It leaves
// the shard in which it is one; nothing is lost, and no statement fails.
var priorityChangedTests = []test{
	{name: "ABlockThatFailsAgain", run: testChangedBlockFails},
	{name: "ABlockOfTwoClasses", run: testChangedBlockOfTwo},
	{name: "ARowThatIsDeferred", run: testChangedDeferredBlock},
}

// demote makes all open rows that are not deferred a backfill.
func (t *table) demote() {
	t.Helper()
	t.exec("UPDATE {t} SET priority = -1 WHERE status IN ('pending', 'failed') AND deferred = " + t.sql.no)
}

// blockFails makes a block of the first of two rows of a key, which has failed again since it came back.
func (t *table) blockFails() (key string, ids []int64) {
	t.Helper()
	key, ids = t.failedBlock()
	t.failHead(ids[0])
	return key, ids
}

// all lets everything through.
func (t *table) all() (delivered []int64) {
	t.Helper()
	for range 5 {
		t.pass()
		delivered = append(delivered, t.drain()...)
	}
	return delivered
}

func testChangedBlockFails(t *table) {
	key, ids := t.blockFails()
	late := t.add(key)
	t.demote()
	assert.Equal(t, 2, t.deferRows(backfill(t)))
	assert.ElementsMatch(t, append(ids, late...), t.all())
	t.clean()
}

// It is the block of two classes then. In the one that it has left, more wait for it than one claim lets
// through; that is of no concern to the other.
func testChangedBlockOfTwo(t *table) {
	key := t.keys(1)[0]
	ids := t.add(slices.Repeat([]string{key}, 1+driver.MaxFollowers)...)
	t.failHead(ids[0])
	require.Equal(t, len(ids), t.deferRows(window(4000)))
	t.pass()
	t.failHead(ids[0])
	t.demote()
	low := t.addWith(-1, key)
	require.Equal(t, 2, t.deferRows(backfill(t)))
	t.pass()
	batch := t.claim(wake, backfill(t))
	require.Equal(t, ids[:1], taken(batch))
	t.publish(batch)
	require.Equal(t, ids[1:11], taken(t.claim(wake, limit(10))))
	assert.Equal(t, low, taken(t.claim(wake, backfill(t))))
}

// A block that is deferred itself comes back when its time has come, wherever it is then.
func testChangedDeferredBlock(t *table) {
	key := t.keys(1)[0]
	ids := t.add(key, key)
	t.failHead(ids[0])
	require.Equal(t, 2, t.deferRows())
	t.exec("UPDATE {t} SET priority = -1 WHERE id = ?", ids[0])
	assert.Equal(t, ids, t.all())
	t.clean()
}
