package storetest

import (
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
	{name: "OnAbandon", run: testBlockOnAbandon},
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
