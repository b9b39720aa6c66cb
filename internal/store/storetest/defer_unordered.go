package storetest

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
