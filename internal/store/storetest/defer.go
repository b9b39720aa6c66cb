package storetest

import (
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

var deferTests = []test{
	{name: "FollowersOfAFailedHead", run: testDeferFollowers},
	{name: "ChunkByChunk", run: testDeferChunks},
	{name: "BlockRemovedByHand", run: testDeferBlockGone},
	{name: "LooksNoFurtherThanTold", run: testDeferWindow},
	{name: "OrderSwitchedOn", run: testDeferSwitchedOn},
	{name: "OnAbandon", run: testBlockOnAbandon},
	{name: "OnAbandonBehindABlock", run: testBlockOnAbandonBehindBlock},
	{name: "OtherBrokers", run: testDeferOtherBrokers},
}

func wake(c *driver.Claim) { c.Wake = true }

func (t *table) deferRows(change ...func(*driver.Claim)) int {
	t.Helper()
	deferred, err := t.Store.Defer(t.Context(), t.request(change...))
	require.NoError(t, err)
	return deferred
}

// pass makes the times of waiting rows come, in the rows and where they are deferred.
func (t *table) pass() {
	t.Helper()
	for _, column := range []string{"locked_until", "available_at"} {
		t.exec("UPDATE {t} SET " + column + " = " + t.sql.minus(column, 2*lease) + " WHERE " + column + " IS NOT NULL AND finished_at IS NULL AND status <> 'processing'")
	}
	t.exec("UPDATE {t}_key_blocks SET wake_at = " + t.sql.minus("wake_at", 2*lease) + " WHERE reason <> 'operator'")
}

func (t *table) deferred() int {
	return int(t.number("SELECT count(*) FROM {t} WHERE deferred <> " + t.sql.no))
}

func (t *table) blocks() int { return int(t.number("SELECT count(*) FROM {t}_key_blocks")) }

// failHead claims the first row of a key and fails it, to be retried in a minute.
func (t *table) failHead(id int64) {
	t.Helper()
	batch := t.claim(limit(1), wake)
	require.Equal(t, []int64{id}, taken(batch))
	require.Zero(t, t.complete(retryLater(batch, id)).Lost)
}

func testDeferFollowers(t *table) {
	k := t.keys(2)
	ids := t.add(k[0], k[0], k[0])
	t.failHead(ids[0])
	other := t.add(k[1])
	batch := t.claim(limit(2), window(3))
	assert.Empty(t, batch.Messages)
	assert.Equal(t, 3, batch.Waiting)
	assert.False(t, batch.Blocked)

	assert.Equal(t, 3, t.deferRows())
	assert.Equal(t, 3, t.deferred())
	assert.Equal(t, 1, t.blocks())
	assert.Zero(t, t.deferRows(), "there is nothing left to defer")
	batch = t.claim(limit(2), window(2), wake)
	assert.Equal(t, other, taken(batch), "others are in reach of a small window")
	assert.Equal(t, 1, batch.Seen)
	assert.True(t, batch.Blocked)
	t.publish(batch)
	assert.Empty(t, t.ready())

	t.pass()
	assert.Equal(t, []int{t.shard}, t.ready(), "the block is due")
	batch = t.claim(wake)
	assert.Equal(t, ids[:1], taken(batch), "the block alone; what is behind it waits for its outcome")
	assert.Empty(t, t.claim(wake).Messages)
	t.publish(batch)
	assert.Equal(t, []int{t.shard}, t.ready(), "the block is done")
	batch = t.claim(wake)
	assert.Equal(t, ids[1:], taken(batch))
	assert.Zero(t, t.blocks())
	assert.Zero(t, t.deferred())
	t.publish(batch)
	assert.False(t, t.claim(wake).Blocked)
}

// Many followers come back by and by, and in order.
func testDeferChunks(t *table) {
	k := t.keys(2)
	const followers = 1300
	names := make([]string, 1+followers)
	for i := range names {
		names[i] = k[0]
	}
	ids := t.add(names...)
	t.failHead(ids[0])
	require.Equal(t, len(ids), t.deferRows(window(4000)))
	t.pass()
	other := t.add(k[1])
	var got []int64
	for range 20 {
		batch := t.claim(limit(400), wake)
		for _, id := range taken(batch) {
			if id != other[0] {
				got = append(got, id)
			}
		}
		require.LessOrEqual(t, batch.Seen, 1000, "they do not all come at once")
		t.publish(batch)
		late := t.add(k[0]) // in the middle of it
		ids = append(ids, late...)
		if len(got) == len(ids)-1 {
			break
		}
	}
	assert.Equal(t, ids[:len(got)], got)
	assert.GreaterOrEqual(t, len(got), 1+followers)
	assert.Zero(t, t.blocks())
	assert.Zero(t, t.deferred())
}

func testDeferBlockGone(t *table) {
	k := t.keys(1)[0]
	ids := t.add(k, k)
	t.failHead(ids[0])
	require.Equal(t, 2, t.deferRows())
	t.exec("DELETE FROM {t} WHERE id = ?", ids[0])
	assert.Empty(t, t.claim(wake).Messages, "it is noticed when its time comes")
	t.pass()
	assert.Equal(t, []int{t.shard}, t.ready())
	assert.Equal(t, ids[1:], taken(t.claim(wake)))
	assert.Zero(t, t.blocks())
}

func testDeferWindow(t *table) {
	k := t.keys(1)[0]
	ids := t.add(k, k, k, k)
	t.failHead(ids[0])
	assert.Equal(t, 3, t.deferRows(limit(1), window(3)))
	assert.Equal(t, 1, t.deferRows(limit(1), window(3)), "the rest moves up")
	assert.Equal(t, 1, t.blocks())
}

func testBlockOnAbandon(t *table) {
	k := t.keys(2)
	loose := t.addLoose(1)
	ids := t.add(k[0], k[0], k[1])
	batch := t.claim()
	require.Len(t, batch.Messages, 4)
	s := &driver.Completion{Lease: batch.Lease, BlockAbandoned: true, Other: []driver.Outcome{
		{ID: loose[0], Status: outbox.StatusAbandoned, Spent: true},
		{ID: ids[0], Status: outbox.StatusAbandoned, Spent: true},
		{ID: ids[1], Status: outbox.StatusPending},
		{ID: ids[2], Status: outbox.StatusPending},
	}}
	require.Zero(t, t.complete(s).Lost)
	assert.Equal(t, 1, t.blocks(), "a row without a key blocks nothing")
	batch = t.claim(wake)
	assert.Equal(t, ids[2:], taken(batch))
	t.publish(batch)
	t.pass()
	assert.Empty(t, t.claim(wake).Messages, "no time brings it back")
	assert.Equal(t, 1, t.deferRows(), "what is behind it can be taken out of the way")
	assert.Empty(t, t.ready())
}

// The abandoned row stands in the middle of what a block has let through.
func testBlockOnAbandonBehindBlock(t *table) {
	k := t.keys(1)[0]
	names := make([]string, 701)
	for i := range names {
		names[i] = k
	}
	ids := t.add(names...)
	t.failHead(ids[0])
	require.Equal(t, len(ids), t.deferRows(window(4000)))
	t.pass()
	t.publish(t.claim(wake))
	batch := t.claim(limit(10), wake)
	require.Equal(t, ids[1:11], taken(batch))
	s := outcome(batch, driver.Outcome{Status: outbox.StatusPending})
	s.Other[0].Status, s.BlockAbandoned = outbox.StatusAbandoned, true
	require.Zero(t, t.complete(s).Lost)
	assert.Equal(t, 1, t.blocks())
	assert.Empty(t, t.claim(wake).Messages)
	t.deferRows(window(4000))
	assert.Zero(t, t.claim(wake).Seen)
}

func testDeferOtherBrokers(t *table) {
	k := t.keys(1)[0]
	ids := t.add(k, k)
	t.failHead(ids[0])
	row := newRow(k)
	row.TargetBroker = "another"
	id := t.insert(row)
	require.Equal(t, 2, t.deferRows())
	batch := t.claim(wake, func(c *driver.Claim) { c.Broker = "another" })
	assert.Equal(t, id, taken(batch), "a broker's blocks are its own")
	assert.False(t, batch.Blocked)
}

// Blocks that were in the way of claims once, and have to wait again.
var deferAgainTests = []test{
	{name: "DeferredBeforeTheNextClaim", run: testBlockDeferredAgain},
}

// A block that failed again is deferred while it stands in the claim's way. It keeps its followers,
// and wakes at its new time.
func testBlockDeferredAgain(t *table) {
	k := t.keys(1)[0]
	scheduled := newRow(k)
	scheduled.AvailableAt = time.Now().Add(lease)
	ids := append(t.insert(scheduled), t.add(k)...)
	require.Equal(t, 2, t.deferRows())
	reason := func(name string) int64 { return t.number("SELECT count(*) FROM {t}_key_blocks WHERE reason = ?", name) }
	assert.EqualValues(t, 1, reason("scheduled"))
	t.pass()
	t.failHead(ids[0])
	require.Equal(t, 1, t.deferRows(), "by itself, before a claim moves it")
	assert.Equal(t, 2, t.deferred())
	assert.Equal(t, 1, t.blocks())
	assert.EqualValues(t, 1, reason("backoff"), "for what it waits now")
	assert.Empty(t, t.ready())
	assert.Empty(t, t.claim(wake).Messages)
	t.pass()
	assert.Equal(t, []int{t.shard}, t.ready())
	batch := t.claim(wake)
	require.Equal(t, ids[:1], taken(batch))
	t.publish(batch)
	assert.Equal(t, ids[1:], taken(t.claim(wake)))
	assert.Zero(t, t.blocks())
}

// Deferring where order is off, and where that is changed while rows wait.

// Rows that wait alone, from a time without order, become followers and blocks like all others.
func testDeferSwitchedOn(t *table) {
	k := t.keys(1)[0]
	names := make([]string, 502)
	for i := range names {
		names[i] = k
	}
	ids := t.add(names...)
	for _, id := range []int64{ids[1], ids[500]} {
		t.exec("UPDATE {t} SET status = 'failed', attempts = 1, locked_until = "+t.sql.minus("created_at", -lease)+" WHERE id = ?", id)
	}
	require.Equal(t, 2, t.deferRows(unordered, window(4000)))
	t.failHead(ids[0])
	require.Equal(t, 500, t.deferRows(window(4000)))
	t.expire(ids[0])
	t.exec("UPDATE {t}_key_blocks SET wake_at = "+t.sql.minus("wake_at", 2*lease)+" WHERE block_id = ?", ids[0])
	batch := t.claim(wake)
	require.Equal(t, ids[:1], taken(batch))
	t.publish(batch)
	assert.Empty(t, t.claim(wake).Messages, "the second row waits for its time")
	t.deferRows(window(4000))
	t.pass()
	var got []int64
	for range 10 {
		batch = t.claim(limit(1000), wake)
		got = append(got, taken(batch)...)
		t.publish(batch)
	}
	assert.Equal(t, ids[1:], got)
	assert.Zero(t, t.blocks())
	assert.Zero(t, t.deferred())
}
