package relay

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Who wants to be alone waits, with nothing claimed, for those who have claimed something, and
// nobody begins meanwhile.
func TestIsolation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newCrashIsolation()
		first, second, third := claimant{process: s}, claimant{process: s}, claimant{process: s}
		require.NoError(t, first.join(t.Context()))
		require.NoError(t, first.join(t.Context()), "twice is once")
		require.NoError(t, second.join(t.Context()))
		require.NoError(t, third.join(t.Context()))
		var events []string
		note := func(what string) func() { return func() { events = append(events, what) } }
		done := make(chan func(), 3)
		go func() { assert.NoError(t, first.isolate(t.Context(), time.Hour)); done <- note("alone") }()
		synctest.Wait()
		assert.True(t, s.wanted())
		assert.Equal(t, 2, s.busy)
		go func() {
			assert.NoError(t, third.isolate(t.Context(), time.Hour))
			third.rejoin()
			third.leave()
			done <- note("alone, too")
		}()
		synctest.Wait()
		assert.Equal(t, 1, s.busy)
		assert.Empty(t, done)
		second.leave()
		(<-done)()
		go func() { assert.NoError(t, second.join(t.Context())); second.leave(); done <- note("joined") }()
		synctest.Wait()
		assert.Empty(t, done, "one at a time")
		assert.Equal(t, 1, s.busy)
		first.leave()
		first.rejoin()
		(<-done)()
		(<-done)()
		assert.ElementsMatch(t, []string{"alone", "alone, too", "joined"}, events)
		assert.Equal(t, "alone", events[0])
		assert.False(t, s.wanted())
		assert.Zero(t, s.busy)
	})
}

// A worker that hangs stops neither who wants to be alone nor, by that, the others for longer than
// the limit; and for a while nobody waits for it again.
func TestIsolationIsNotWaitedForWithoutEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newCrashIsolation()
		hangs, first, other := claimant{process: s}, claimant{process: s}, claimant{process: s}
		require.NoError(t, hangs.join(t.Context()))
		began := time.Now()
		require.NoError(t, first.isolate(t.Context(), time.Minute))
		assert.Equal(t, time.Minute, time.Since(began))
		require.NoError(t, other.join(t.Context()), "goes on beside the one that hangs")
		first.rejoin()
		for range 10 {
			require.NoError(t, first.isolate(t.Context(), time.Minute))
			first.rejoin()
		}
		assert.Equal(t, time.Minute, time.Since(began))
		other.leave()

		time.Sleep(restShare * time.Minute)
		go func() { assert.NoError(t, first.isolate(t.Context(), time.Hour)) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, other.join(ctx), context.DeadlineExceeded, "a shutdown ends every wait")
		require.ErrorIs(t, other.isolate(ctx, time.Hour), context.DeadlineExceeded)
		other.leave()
		hangs.leave()
		synctest.Wait()
		assert.Equal(t, 1, s.busy)
		assert.True(t, s.wanted())
		first.rejoin()
	})
}

// Nor does a worker that hangs while it is alone, and what ended by itself is not ended twice.
func TestIsolationEndsByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newCrashIsolation()
		hangs, other, third := claimant{process: s}, claimant{process: s}, claimant{process: s}
		require.NoError(t, third.join(t.Context()))
		go func() { time.Sleep(time.Second); third.leave() }()
		began := time.Now()
		require.NoError(t, hangs.isolate(t.Context(), time.Minute))
		assert.Equal(t, time.Second, time.Since(began))
		require.NoError(t, other.join(t.Context()))
		assert.Equal(t, time.Minute, time.Since(began), "from the moment on in which the others had to wait")
		other.leave()
		require.NoError(t, other.isolate(t.Context(), time.Minute))
		assert.False(t, s.wanted(), "rests")

		other.leave()
		hangs.leave()
		time.Sleep(restShare * time.Minute)
		require.NoError(t, other.isolate(t.Context(), time.Minute))
		hangs.rejoin()
		assert.True(t, s.wanted(), "another worker's")
		other.rejoin()
		other.leave()
		assert.False(t, s.wanted())
		require.NoError(t, hangs.isolate(t.Context(), time.Minute), "what ended in time needs no rest")
		assert.True(t, s.wanted())
		hangs.rejoin()
		hangs.leave()
		assert.Zero(t, s.busy)
	})
}
