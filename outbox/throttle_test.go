package outbox

import (
	"context"
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
