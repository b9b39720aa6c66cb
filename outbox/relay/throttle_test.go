package relay

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestThrottle(t *testing.T) {
	t.Parallel()
	assert.Nil(t, newThrottle(0))
	assert.Equal(t, 77, newThrottle(0).most(77))
	require.NoError(t, newThrottle(0).take(t.Context(), 1000))
	for perSecond, burst := range map[float64]int{0.01: 1, 5: 1, 25: 3, 999: 100, 1e9: 100} {
		assert.Equal(t, burst, newThrottle(perSecond).most(1000), "%g", perSecond)
	}
	synctest.Test(t, func(t *testing.T) {
		th := newThrottle(20)
		n, wait := th.allowance()
		assert.Equal(t, 2, n)
		assert.Zero(t, wait)
		require.NoError(t, th.take(t.Context(), 2))
		n, wait = th.allowance()
		assert.Zero(t, n)
		assert.Equal(t, 50*time.Millisecond, wait)
		time.Sleep(wait)
		n, _ = th.allowance()
		assert.Equal(t, 1, n)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.Error(t, th.take(ctx, 2))
	})
}

// Where another worker has been faster, the wait is short, whatever the rate: meanwhile rows lie
// about, a pause and a shutdown wait.
func TestThrottleGivesUpALongWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := newThrottle(0.01)
		require.NoError(t, slow.take(t.Context(), 1))
		began := time.Now()
		require.Error(t, slow.take(t.Context(), 1))
		assert.Less(t, time.Since(began), 2*time.Second)
		require.NoError(t, slow.wait(t.Context()), "what was cancelled has taken nothing from the rate")
		assert.InDelta(t, 100, time.Since(began).Seconds(), 0.1)
		require.NoError(t, slow.take(t.Context(), 1))

		quick := newThrottle(1000)
		for range 5 {
			require.NoError(t, quick.take(t.Context(), 100))
		}
	})
}

// However low the rate, the wait is a time that can pass: an overflow would make it none.
func TestThrottleNeverOverflows(t *testing.T) {
	t.Parallel()
	for _, perSecond := range []float64{math.SmallestNonzeroFloat64, 1e-300, 1e-12, 1e-3, 1e300, math.MaxFloat64} {
		th := newThrottle(perSecond)
		require.NoError(t, th.take(t.Context(), 1), "%g", perSecond)
		for {
			n, wait := th.allowance()
			if n > 0 {
				break
			}
			assert.Positive(t, wait, "%g", perSecond)
			if perSecond < 1 {
				break
			}
		}
	}
}
