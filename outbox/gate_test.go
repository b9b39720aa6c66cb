package outbox

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		g := newGate(time.Second, 8*time.Second)
		probe, err := g.enter(ctx)
		require.NoError(t, err)
		assert.False(t, probe)
		assert.True(t, g.report(false), "the outage is news")
		assert.False(t, g.report(false), "and only once")

		// Delays double, and one worker at a time tries.
		for _, want := range []time.Duration{1, 2, 4, 8, 8} {
			began := time.Now()
			probe, err = g.enter(ctx)
			require.NoError(t, err)
			assert.True(t, probe)
			assert.LessOrEqual(t, time.Since(began), want*time.Second)
			assert.GreaterOrEqual(t, time.Since(began), want*time.Second*3/4-time.Nanosecond)

			g.report(false)
		}

		// One worker at a time.
		_, err = g.enter(ctx)
		require.NoError(t, err)
		second := make(chan bool)
		go func() { p, _ := g.enter(ctx); second <- p }()
		synctest.Wait()
		select {
		case <-second:
			t.Error("a second worker tries while the first does")
		default:
		}
		g.leave()
		assert.True(t, <-second, "the first had nothing to try with")

		// A success opens it for all who wait.
		waiting := make(chan bool)
		go func() { p, _ := g.enter(ctx); waiting <- p }()
		synctest.Wait()
		assert.True(t, g.report(true))
		assert.False(t, <-waiting)
		assert.False(t, g.closed())

		g.report(false)
		cancel()
		_, err = g.enter(ctx)
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestLaneBoard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := newLaneBoard(3)
		b.mark(0, 1, 2)
		first, ok := b.take(ctx, 2)
		require.True(t, ok)
		second, _ := b.take(ctx, first)
		assert.Equal(t, []int{0, 1}, []int{first, second})
		b.put(first, true)
		third, _ := b.take(ctx, first)
		assert.Equal(t, 2, third, "every lane gets its turn")
		again, _ := b.take(ctx, third)
		assert.Equal(t, 0, again, "and one with more work comes back")

		b.mark(1) // while it is in somebody's hands
		taken := make(chan int)
		go func() { lane, _ := b.take(ctx, 0); taken <- lane }()
		synctest.Wait()
		select {
		case <-taken:
			t.Error("a lane was handed out twice")
		default:
		}
		b.put(1, false)
		assert.Equal(t, 1, <-taken)

		b.mark(-1, 9)
		cancel()
		_, ok = b.take(ctx, 0)
		assert.False(t, ok)
	})
}

// The urgent class comes first, and the backfill is not starved by those before it.
func TestLaneBoardClasses(t *testing.T) {
	t.Parallel()
	b := newLaneBoard(1)
	b.mark()
	var turns []int
	for range 8 {
		lane, ok := b.take(t.Context(), 0)
		require.True(t, ok)
		turns = append(turns, lane)
		assert.Equal(t, lane == 1, b.outranked(lane), "others wait for a worker")
		b.put(lane, true)
	}
	assert.Equal(t, []int{2, 2, 2, 1, 2, 2, 2, 1}, turns)
}
