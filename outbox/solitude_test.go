package outbox

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Who wants to be alone waits for those who have something in hand, and nobody begins meanwhile.
func TestSolitude(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSolitude()
		first, second, third := company{solitude: s}, company{solitude: s}, company{solitude: s}
		require.NoError(t, first.join(t.Context()))
		require.NoError(t, first.join(t.Context()), "twice is once")
		require.NoError(t, second.join(t.Context()))
		var events []string
		note := func(what string) func() { return func() { events = append(events, what) } }
		done := make(chan func(), 3)
		go func() { assert.True(t, first.isolate(t.Context(), time.Hour)); done <- note("alone") }()
		synctest.Wait()
		assert.True(t, s.wanted())
		assert.False(t, second.isolate(t.Context(), time.Hour), "one at a time")
		go func() { assert.NoError(t, third.join(t.Context())); done <- note("joined") }()
		synctest.Wait()
		assert.Empty(t, done)
		second.leave()
		(<-done)()
		synctest.Wait()
		assert.Empty(t, done)
		first.rejoin()
		(<-done)()
		assert.Equal(t, []string{"alone", "joined"}, events)
		assert.False(t, s.wanted())
		first.leave()
		third.leave()
		third.leave()
		assert.Zero(t, s.busy)
	})
}

// A worker that hangs does not stop the others for ever, and a shutdown ends every wait.
func TestSolitudeIsNotWaitedForWithoutEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSolitude()
		hangs, first, other := company{solitude: s}, company{solitude: s}, company{solitude: s}
		require.NoError(t, hangs.join(t.Context()))
		require.NoError(t, first.join(t.Context()))
		began := time.Now()
		assert.True(t, first.isolate(t.Context(), time.Minute))
		assert.Equal(t, time.Minute, time.Since(began))
		require.NoError(t, other.join(t.Context()), "goes on beside the one that hangs")
		first.rejoin()
		other.leave()

		go func() { assert.True(t, first.isolate(t.Context(), time.Hour)) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, other.join(ctx), context.DeadlineExceeded)
		other.leave()
		hangs.leave()
		synctest.Wait()
		assert.True(t, first.isolated)
	})
}
