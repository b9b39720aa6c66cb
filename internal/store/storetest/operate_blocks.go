package storetest

import (
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// abandonByHand makes rows abandoned as if that had been long ago, when their key went on.
func (t *table) abandonByHand(ids ...int64) {
	t.Helper()
	for _, id := range ids {
		t.exec("UPDATE {t} SET status = 'abandoned', finished_at = created_at, locked_until = NULL, attempts = 5, deferred = "+t.sql.no+" WHERE id = ?", id)
	}
}

// next claims, in the shard of the test, exactly the given rows, and publishes them.
func (t *table) next(ids ...int64) {
	t.Helper()
	batch := t.claim(window(4000), limit(many), wake)
	require.Equal(t, ids, taken(batch))
	t.publish(batch)
}

// nothing checks that no row of the shard of the test can be claimed.
func (t *table) nothing(why string) {
	t.Helper()
	require.Empty(t, taken(t.claim(window(4000), limit(many), wake)), why)
}

// drain publishes what there is, in all classes of the shard of the test, and returns it in the
// order of delivery.
func (t *table) drain() (got []int64) {
	t.Helper()
	for idle := 0; idle < 2; idle++ {
		for class := range outbox.Classes {
			batch := t.claim(window(4000), limit(many), wake, func(c *driver.Claim) { c.Shard += class * t.Store.Shards() })
			if len(batch.Messages) > 0 {
				idle = -1
				got = append(got, taken(batch)...)
				t.publish(batch)
			}
		}
	}
	return got
}

// clean checks that nothing is left of blocks.
func (t *table) clean() {
	t.Helper()
	assert.Zero(t, t.blocks(), "blocks")
	assert.Zero(t, t.deferred(), "deferred rows")
	assert.Empty(t, t.ready())
}

// Abandoned rows of a key return to their place while its block and some followers are claimable again.
func testRequeueBeforeActiveBlock(t *table) {
	k := t.keys(1)[0]
	names := make([]string, 701)
	for i := range names {
		names[i] = k
	}
	ids := t.add(names...)
	t.failHead(ids[0])
	require.Equal(t, len(ids), t.deferRows(window(4000)))
	t.pass()
	t.next(ids[0])
	batch := t.claim(limit(10), wake)
	require.Equal(t, ids[1:11], taken(batch))
	s := published(batch)
	s.Published = s.Published[:9]
	s.Other = []driver.Outcome{{ID: ids[10], Status: outbox.StatusAbandoned, Spent: true}}
	require.Zero(t, t.complete(s).Lost)
	t.abandonByHand(ids[300], ids[600])

	batch = t.claim(limit(5), wake)
	require.Equal(t, ids[11:16], taken(batch))
	assert.Equal(t, 3, t.requeue(admin.Filter{Broker: broker, Statuses: []outbox.Status{outbox.StatusAbandoned}}))
	t.nothing("the key is claimed")
	t.publish(batch)
	assert.Equal(t, append(ids[10:11:11], ids[16:]...), t.drain())
	t.clean()
}

// A row that is requeued behind the block of its key waits for that block, as the rows beside it do.
func testRequeueBehindBlock(t *table) {
	k := t.keys(1)[0]
	ids := t.add(k, k, k)
	t.failHead(ids[0])
	require.Equal(t, 3, t.deferRows())
	t.abandonByHand(ids[2])
	require.Equal(t, 1, t.requeue(t.these(ids[2])))
	assert.Equal(t, 3, t.deferred())
	t.pass()
	assert.Equal(t, ids, t.drain())
}

// Entries among the key blocks that strangers have written, or left behind, cost no other row anything: one
// with an empty key, and that of a row that was given another broker.
func testEntriesByHand(t *table) {
	k := t.keys(3)
	ids := t.add(k[0], k[1], k[2], "")
	t.exec("UPDATE {t} SET status = 'failed', locked_until = NULL")
	for i, key := range []string{"", k[1]} {
		t.exec("INSERT INTO {t}_key_blocks (block_id, block_message_id, target_broker, shard, ordering_key, wake_at, reason, since)"+
			" SELECT id, message_id, target_broker, shard, ?, created_at, 'backoff', created_at FROM {t} WHERE id = ?", key, ids[i])
	}
	t.exec("UPDATE {t} SET target_broker = 'other' WHERE id = ?", ids[1])
	n, err := t.Store.Abandon(t.Context(), admin.Filter{}, "not wanted", 2)
	require.NoError(t, err)
	assert.Equal(t, 2, n)
	n, err = t.Store.Requeue(t.Context(), admin.Filter{}, many)
	require.NoError(t, err)
	assert.Equal(t, 4, n)
}

// abandonAndBlock claims the first row of a key and abandons it where that makes the key wait for
// an operator.
func (t *table) abandonAndBlock(id int64) {
	t.Helper()
	batch := t.claim(limit(1), wake)
	require.Equal(t, []int64{id}, taken(batch))
	require.Zero(t, t.complete(blocking(batch)).Lost)
}

// blocking abandons all rows of a batch where that makes their keys wait for an operator.
func blocking(b driver.Batch) *driver.Completion {
	s := outcome(b, driver.Outcome{Status: outbox.StatusAbandoned, Spent: true, LastError: `{"class":"permanent"}`})
	s.BlockAbandoned = true
	return s
}

func (t *table) blockedKeys() []admin.BlockedKey {
	t.Helper()
	keys, err := t.Store.BlockedKeys(t.Context(), broker, many)
	require.NoError(t, err)
	return keys
}

func (t *table) release(key string) bool {
	t.Helper()
	ok, err := t.Store.UnblockKey(t.Context(), broker, key)
	require.NoError(t, err)
	return ok
}

func testDeferredReleasePurged(t *table) {
	k := t.keys(1)[0]
	ids := t.add(k, k)
	t.abandonAndBlock(ids[0])
	assert.Zero(t, t.purge(outbox.StatusAbandoned, 0, 10), "a key waits for an operator")
	t.exec("DELETE FROM {t} WHERE id = ?", ids[0])
	t.nothing("the key waits for an operator, not for the row")
	require.Len(t, t.blockedKeys(), 1)
	assert.True(t, t.release(k))
	t.next(ids[1])
	t.clean()
}

// The rows of one message for several brokers share its id: an action for one of them leaves the
// others as they are.
func testSameMessage(t *table) {
	k := t.keys(1)[0]
	head, other := newRow(k), newRow(k)
	other.MessageID, other.TargetBroker = head.MessageID, "another"
	follower := newRow(k)
	follower.TargetBroker = "another"
	ids := t.insert(head, newRow(k), other, follower)
	another := func(c *driver.Claim) { c.Broker = "another" }
	for _, abandon := range []bool{false, true} {
		t.failHead(ids[0])
		batch := t.claim(another, limit(1), wake)
		require.Equal(t, ids[2:3], taken(batch))
		require.Zero(t, t.complete(retryLater(batch, ids[2])).Lost)
		t.deferRows()
		t.deferRows(another)
		if abandon {
			assert.Equal(t, 1, t.abandon(t.these(ids[0])))
			t.next(ids[1])
		} else {
			assert.Equal(t, 1, t.requeue(t.these(ids[0])))
			t.nextIs(ids[0])
		}
		assert.Empty(t, t.claim(another, wake).Messages, "the other one waits")
		t.pass()
	}
	assert.Equal(t, ids[2:3], taken(t.claim(another, wake)))
	assert.Equal(t, 1, t.requeue(admin.Filter{MessageIDs: []string{head.MessageID.String()}}), "the other one is claimed")
}

// nextIs claims the given row alone and gives it back.
func (t *table) nextIs(id int64) {
	t.Helper()
	batch := t.claim(wake)
	require.Equal(t, []int64{id}, taken(batch))
	require.Zero(t, t.complete(outcome(batch, driver.Outcome{Status: outbox.StatusPending})).Lost)
}

// What docs/plain-sql.md says about statements by hand.
func testByHand(t *table) {
	k := t.keys(1)[0]
	ids := t.add(k, k)
	t.failHead(ids[0])
	require.Equal(t, 2, t.deferRows())
	t.exec("UPDATE {t} SET status = 'pending', locked_until = NULL, available_at = NULL, attempts = 0, crashes = 0 WHERE id = ?", ids[0])
	t.nothing("its block is still closed")
	t.exec("UPDATE {t}_key_blocks SET wake_at = since WHERE ordering_key = ?", k)
	assert.Equal(t, []int{t.shard}, t.ready())
	t.next(ids[0])
	t.next(ids[1])

	ids = t.add(k, k)
	t.abandonAndBlock(ids[0])
	require.Equal(t, 1, t.deferRows())
	t.exec("UPDATE {t} SET status = 'pending', finished_at = NULL, locked_until = NULL, attempts = 0, crashes = 0 WHERE id = ?", ids[0])
	t.next(ids[0])
	t.nothing("the key still waits for a word")
	t.exec("UPDATE {t}_key_blocks SET wake_at = since WHERE ordering_key = ?", k)
	assert.Empty(t, t.blockedKeys())
	t.next(ids[1])
	t.clean()
}

func testBlockedKeys(t *table) {
	assert.Empty(t, t.blockedKeys())
	k := t.keys(4)
	ids := t.add(k[0], k[1], k[2])
	t.abandonAndBlock(ids[0])
	t.abandonAndBlock(ids[1])
	t.failHead(ids[2])
	require.Equal(t, 1, t.deferRows())
	row := newRow(k[3])
	row.TargetBroker = "another"
	other := t.insert(row)
	batch := t.claim(func(c *driver.Claim) { c.Broker = "another" })
	s := outcome(batch, driver.Outcome{Status: outbox.StatusAbandoned})
	s.BlockAbandoned = true
	require.Zero(t, t.complete(s).Lost)
	for i, key := range []string{k[1], k[3], k[0]} { // the order in which they deferred
		t.exec("UPDATE {t}_key_blocks SET since = "+t.sql.minus("since", time.Duration(10-i)*time.Minute)+" WHERE ordering_key = ?", key)
	}
	keys := t.blockedKeys()
	require.Len(t, keys, 2)
	assert.WithinDuration(t, time.Now().Add(-10*time.Minute), keys[0].Since, time.Minute)
	keys, err := t.Store.BlockedKeys(t.Context(), "", 3)
	require.NoError(t, err)
	for i := range keys {
		keys[i].Since = time.Time{}
	}
	want := []admin.BlockedKey{
		{Broker: broker, Key: k[1], MessageID: t.messageID(ids[1])},
		{Broker: "another", Key: k[3], MessageID: t.messageID(other[0])},
		{Broker: broker, Key: k[0], MessageID: t.messageID(ids[0])},
	}
	assert.Equal(t, want, keys)
	keys, err = t.Store.BlockedKeys(t.Context(), "", 1)
	require.NoError(t, err)
	require.Len(t, keys, 1)
	assert.Equal(t, k[1], keys[0].Key)
	keys, err = t.Store.BlockedKeys(t.Context(), "nobody", 1)
	require.NoError(t, err)
	assert.Empty(t, keys)
}
