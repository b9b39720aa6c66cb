package storetest

import (
	"slices"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
)

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
