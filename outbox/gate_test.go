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

