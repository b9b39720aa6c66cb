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
		p, err := g.enter(ctx)
		require.NoError(t, err)
		assert.False(t, p.probe)
		assert.True(t, g.report(p, false), "the outage is news")
		_, open := g.stay()
		assert.False(t, open)

		// Delays double, and one worker at a time tries.
		for _, want := range []time.Duration{1, 2, 4, 8, 8} {
			began := time.Now()
			p, err = g.enter(ctx)
			require.NoError(t, err)
			assert.True(t, p.probe)
			assert.LessOrEqual(t, time.Since(began), want*time.Second)
			assert.GreaterOrEqual(t, time.Since(began), want*time.Second*3/4-time.Nanosecond)

			assert.False(t, g.report(p, false), "no news")
		}

		// One worker at a time.
		p, err = g.enter(ctx)
		require.NoError(t, err)
		second := make(chan pass)
		go func() { p, _ := g.enter(ctx); second <- p }()
		synctest.Wait()
		select {
		case <-second:
			t.Error("a second worker tries while the first does")
		default:
		}
		g.leave(p)
		p = <-second
		assert.True(t, p.probe, "the first had nothing to try with")

		// A success opens it for all who wait.
		waiting := make(chan pass)
		go func() { p, _ := g.enter(ctx); waiting <- p }()
		synctest.Wait()
		assert.True(t, g.report(p, true))
		p = <-waiting
		assert.False(t, p.probe)
		assert.False(t, g.closed())

		g.report(p, false)
		cancel()
		_, err = g.enter(ctx)
		require.ErrorIs(t, err, context.Canceled)
	})
}

// What began before an outage says nothing about it: it neither opens the gate, nor closes it again, nor lets a second worker try.
func TestGateHeedsNothingThatBeganBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate(time.Second, 8*time.Second)
		early := make([]pass, 5)
		for i := range early {
			early[i], _ = g.enter(t.Context())
		}
		require.True(t, g.report(early[0], false))
		assert.False(t, g.report(early[1], true), "sent before the outage")
		require.True(t, g.closed())

		probe, err := g.enter(t.Context())
		require.NoError(t, err)
		assert.False(t, g.report(early[2], false))
		g.leave(early[3])
		second := make(chan pass)
		go func() { p, _ := g.enter(t.Context()); second <- p }()
		time.Sleep(7 * time.Second)
		synctest.Wait()
		assert.True(t, g.closed())
		select {
		case <-second:
			t.Error("a second worker tries while the first does")
		default:
		}
		assert.True(t, g.report(probe, true))
		assert.False(t, (<-second).probe)
		assert.False(t, g.report(early[4], false), "and not after it either")
		assert.False(t, g.closed())
		late, open := g.stay()
		assert.True(t, open)
		assert.True(t, g.report(late, false))
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
