package relay

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
)

// A shard that has work, in whatever class, or is in a worker's hands takes no more rows by
// hand-off; and what was marked while some were on their way is marked again when all have arrived.
func TestShardBoardHandOff(t *testing.T) {
	t.Parallel()
	b := newShardBoard(4)
	one, two := [outbox.Shards]int{1: 1}, [outbox.Shards]int{1: 1, 2: 3}
	take := func() (shard int) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		shard, ok := b.take(ctx)
		require.True(t, ok)
		return shard
	}
	for class := range outbox.Classes {
		b.mark(class*4 + 2)
		assert.True(t, b.admit(&one))
		b.arrive(1, 1, false)
		assert.False(t, b.admit(&two), "the shard has work of class %d", class)
		shard := take()
		assert.False(t, b.admit(&two), "a worker has it")
		b.put(shard, false)
	}
	assert.True(t, b.admit(&two))
	b.mark(2)
	b.put(take(), false) // the keys were held
	b.arrive(2, 2, false)
	_, ok := b.next()
	assert.False(t, ok, "one is on its way still")
	assert.False(t, b.admit(&two), "no more join it, or what was marked would never be marked again")
	b.arrive(2, 1, false)
	assert.Equal(t, 2, take())
	b.put(2, false)
	b.arrive(1, 1, true)
	assert.Equal(t, 1, take(), "something went back")
	b.put(1, false)
	_, ok = b.next()
	assert.False(t, ok)
	b.stop(true)
	assert.False(t, b.admit(&one), "paused")
}
