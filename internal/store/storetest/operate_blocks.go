package storetest

import (
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

func testRequeueBlock(t *table) {
	k := t.keys(1)[0]
	ids := t.add(k, k, k)
	t.failHead(ids[0])
	require.Equal(t, 3, t.deferRows())
	assert.Empty(t, t.ready())
	assert.Equal(t, 1, t.requeue(admin.Filter{Broker: broker}), "the others wait for no time")
	assert.Equal(t, []int{t.shard}, t.ready())
	t.next(ids[0])
	t.next(ids[1:]...)
	t.clean()
}

// A block that was requeued and fails again goes back to where it was.
func testRequeueScheduled(t *table) {
	k := t.keys(1)[0]
	ids := t.add(k, k)
	t.exec("UPDATE {t} SET available_at = "+t.sql.minus("created_at", -lease)+" WHERE id = ?", ids[0])
	require.Equal(t, 2, t.deferRows())
	t.nothing("not yet")
	assert.Equal(t, 1, t.requeue(admin.Filter{Broker: broker, Statuses: []outbox.Status{outbox.StatusPending}}))
	t.failHead(ids[0])
	t.nothing("it waits again")
	assert.Equal(t, 2, t.deferred())
	t.pass()
	t.next(ids[0])
	t.next(ids[1])
	t.clean()
}

// What is requeued behind its key's block stays behind it.
func testRequeueFollower(t *table) {
	k := t.keys(1)[0]
	ids := t.add(k, k, k, k)
	t.failHead(ids[0])
	t.exec("UPDATE {t} SET status = 'failed', attempts = 4, locked_until = "+t.sql.minus("created_at", -lease)+" WHERE id = ?", ids[1])
	t.exec("UPDATE {t} SET available_at = "+t.sql.minus("created_at", -lease)+" WHERE id = ?", ids[2])
	require.Equal(t, 4, t.deferRows())
	late := t.add(k)
	t.exec("UPDATE {t} SET status = 'failed' WHERE id = ?", late[0])
	assert.Equal(t, 3, t.requeue(t.these(ids[1], ids[2], ids[3], late[0])), "one of them waits for nothing of its own")
	assert.Equal(t, state{Status: "pending"}, t.state(ids[1]))
	t.nothing("the block waits")
	t.pass()
	t.next(ids[0])
	t.next(ids[1], ids[2], ids[3], late[0])
	t.clean()
}

// An abandoned row that stands before its key's block is claimable at once, and holds the block
// until it is done.
func testRequeueBeforeBlock(t *table) {
	k := t.keys(1)[0]
	ids := t.add(k, k, k, k, k)
	t.abandonByHand(ids[0], ids[1])
	t.failHead(ids[2])
	require.Equal(t, 3, t.deferRows())
	assert.Equal(t, 2, t.requeue(admin.Filter{Broker: broker, Statuses: []outbox.Status{outbox.StatusAbandoned}}))
	assert.Equal(t, []int{t.shard}, t.ready())
	t.failHead(ids[0])
	t.nothing("it has to wait, and the others behind it")
	t.deferRows()
	assert.Zero(t, t.claim(wake).Seen, "all of them leave the way")
	t.pass()
	batch := t.claim(limit(1), wake)
	require.Equal(t, ids[:1], taken(batch))
	t.nothing("the key is claimed")
	t.publish(batch)
	assert.Equal(t, ids[1:], t.drain())
	t.clean()
}

// The same while the block is back in the way of claims, and so are some of its followers.
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

func testRequeueBehindBlock(t *table) {
	k := t.keys(1)[0]
	ids := t.add(k, k, k)
	t.abandonByHand(ids[1])
	t.failHead(ids[0])
	require.Equal(t, 2, t.deferRows())
	assert.Equal(t, 1, t.requeue(t.these(ids[1])))
	assert.Zero(t, t.claim(wake).Seen, "it is out of the way, as all that stands behind a block")
	t.pass()
	t.next(ids[0])
	t.next(ids[1], ids[2])
	t.clean()
}

func testRequeueLoose(t *table) {
	t.keys(1)
	ids := t.addLoose(4)
	t.abandonByHand(ids[0])
	t.exec("UPDATE {t} SET available_at = "+t.sql.minus("created_at", -lease)+" WHERE id = ?", ids[1])
	batch := t.claim()
	require.Equal(t, ids[2:], taken(batch))
	require.Zero(t, t.complete(retryLater(batch, ids[2:]...)).Lost)
	require.Equal(t, 3, t.deferRows())
	assert.Equal(t, 3, t.blocks())
	assert.Equal(t, 3, t.requeue(t.these(ids[:3]...)))
	assert.Equal(t, 1, t.blocks())
	t.next(ids[:3]...)
	assert.Equal(t, 1, t.abandon(admin.Filter{}))
	t.clean()
}

// Where order is off each row waits alone, also one with a key.
func testRequeueUnordered(t *table) {
	k := t.keys(1)[0]
	ids := t.add(k, k, k)
	batch := t.claim(unordered)
	require.Equal(t, ids, taken(batch))
	require.Zero(t, t.complete(retryLater(batch, ids...)).Lost)
	require.Equal(t, 3, t.deferRows(unordered))
	assert.Equal(t, 1, t.requeue(t.these(ids[1])))
	batch = t.claim(unordered, wake)
	require.Equal(t, ids[1:2], taken(batch))
	t.publish(batch)
	assert.Equal(t, 1, t.abandon(t.these(ids[2])))
	assert.Equal(t, 1, t.blocks())
	assert.Equal(t, 1, t.replay(t.these(ids[1])))
	assert.Equal(t, 1, t.requeue(t.these(ids[0])))
	batch = t.claim(unordered, wake)
	require.Equal(t, ids[:2], taken(batch))
	t.publish(batch)
	t.clean()
}

// The rows of a key stand in shards of several classes, and wait for none of another one.
func testRequeueClasses(t *table) {
	k := t.keys(1)[0]
	low, normal := t.addWith(-1, k), t.addWith(0, k, k)
	low = append(low, t.addWith(-1, k)...)
	t.abandonByHand(low[0])
	t.failHead(normal[0])
	require.Equal(t, 2, t.deferRows())
	assert.Zero(t, t.deferRows(backfill(t)))
	assert.Equal(t, 2, t.requeue(admin.Filter{Broker: broker}))
	batch := t.claim(backfill(t), wake)
	require.Equal(t, low, taken(batch))
	t.publish(batch)
	assert.Equal(t, normal, t.drain())
	t.clean()
}

// A row that comes back before the block that its key has in another class is no concern of that one.
func testRequeueOfOneClass(t *table) {
	k := t.keys(1)[0]
	low, normal := t.addWith(-1, k), t.addWith(0, k, k)
	t.abandonByHand(low[0])
	t.failHead(normal[0])
	require.Equal(t, 2, t.deferRows())
	assert.Equal(t, 1, t.requeue(t.these(low[0])))
	t.nothing("the block waits")
	t.pass()
	t.next(normal[0])
	t.next(normal[1])
	assert.Equal(t, low, taken(t.claim(backfill(t), wake)))
}

func testRequeueOtherBrokers(t *table) {
	k := t.keys(1)[0]
	ids := t.add(k, k)
	row := newRow(k)
	row.TargetBroker = "another"
	others := t.insert(row, newRow(k))
	t.failHead(ids[0])
	require.Equal(t, 3, t.deferRows())
	another := func(c *driver.Claim) { c.Broker = "another" }
	batch := t.claim(another)
	require.Equal(t, others[:1], taken(batch))
	require.Zero(t, t.complete(retryLater(batch, others[0])).Lost)
	require.Equal(t, 1, t.deferRows(another))
	assert.Equal(t, 1, t.requeue(admin.Filter{Broker: "another"}))
	t.nothing("of this broker nothing was asked")
	assert.Equal(t, others[:1], taken(t.claim(another, wake)))
	assert.Equal(t, 1, t.requeue(admin.Filter{}), "of all brokers")
	assert.Equal(t, []int64{ids[0], ids[1], others[1]}, t.drain())
}

func testReplayBeforeBlock(t *table) {
	k := t.keys(1)[0]
	ids := t.add(k, k, k, k)
	batch := t.claim(limit(2))
	require.Equal(t, ids[:2], taken(batch))
	t.publish(batch)
	t.failHead(ids[2])
	require.Equal(t, 2, t.deferRows())
	assert.Equal(t, 2, t.replay(admin.Filter{Key: k}))
	t.pass()
	batch = t.claim(limit(1), wake)
	require.Equal(t, ids[:1], taken(batch))
	t.publish(batch)
	assert.Equal(t, ids[1:], t.drain())
	t.clean()
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
