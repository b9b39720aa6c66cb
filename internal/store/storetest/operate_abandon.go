package storetest

import (
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

func testAbandonBlock(t *table) {
	k := t.keys(2)
	ids := t.add(k[0], k[0], k[0])
	t.failHead(ids[0])
	require.Equal(t, 3, t.deferRows())
	assert.Equal(t, 1, t.abandon(t.these(ids[0])))
	assert.Equal(t, []int{t.shard}, t.ready(), "the block is done")
	t.next(ids[1:]...)
	t.clean()
	assert.Equal(t, 1, t.requeue(t.these(ids[0])))
	t.next(ids[0])

	// Before a claim has moved the block on, the row comes back.
	ids = t.add(k[1], k[1])
	t.failHead(ids[0])
	require.Equal(t, 2, t.deferRows())
	assert.Equal(t, 1, t.abandon(t.these(ids[0])))
	assert.Equal(t, 1, t.requeue(t.these(ids[0])))
	t.next(ids[0])
	t.next(ids[1])
	t.clean()
}

func testAbandonFollower(t *table) {
	k := t.keys(1)[0]
	ids := t.add(k, k, k)
	t.failHead(ids[0])
	require.Equal(t, 3, t.deferRows())
	assert.Equal(t, 1, t.abandon(t.these(ids[1])))
	assert.Equal(t, 2, t.deferred())
	t.nothing("the block waits")
	t.pass()
	t.next(ids[0])
	t.next(ids[2])
	t.clean()
}

func testAbandonKey(t *table) {
	k := t.keys(2)
	t.failHead(t.add(k[0], k[0], k[0])[0])
	require.Equal(t, 3, t.deferRows())
	other := t.add(k[1])
	assert.Equal(t, 3, t.abandon(admin.Filter{Broker: broker, Key: k[0]}))
	t.next(other...)
	t.clean()
	later := t.add(k[0])
	t.next(later...)
}

// The rows of one message for several brokers share its id, and each waits alone.
func testSameLooseMessage(t *table) {
	t.keys(1)
	loose := t.addLoose(1)
	twin := newRow("")
	twin.MessageID, twin.TargetBroker = uuid.MustParse(t.messageID(loose[0])), "another"
	other := t.insert(twin)
	another := func(c *driver.Claim) { c.Broker = "another" }
	for _, action := range []func(admin.Filter) int{t.requeue, t.abandon} {
		t.exec("UPDATE {t} SET available_at = " + t.sql.minus("created_at", -lease))
		require.Equal(t, 1, t.deferRows())
		t.deferRows(another)
		require.Equal(t, 2, t.blocks())
		assert.Equal(t, 1, action(t.these(loose[0])))
		assert.Equal(t, 1, t.blocks())
		assert.Equal(t, 1, t.deferred())
	}
	t.pass()
	assert.Equal(t, other, taken(t.claim(another, wake)))
	t.clean()
}
