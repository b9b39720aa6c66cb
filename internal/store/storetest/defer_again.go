package storetest

import (
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
