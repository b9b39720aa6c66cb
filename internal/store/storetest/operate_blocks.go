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
