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
