package inbox

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestDelays(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 6: 32 * time.Second, 7: time.Minute, 1000: time.Minute} {
		assert.Equal(t, want, Retry{}.delay(n, 0.5), "after failure %d, with chance in the middle", n)
	}
	assert.Equal(t, 750*time.Millisecond, Retry{}.delay(1, 0))
	assert.Equal(t, time.Minute, Retry{}.delay(7, 1), "jitter does not pass the longest pause")
	assert.Equal(t, Retry{Jitter: -1}.withDefaults(), Retry{Jitter: -1}.withDefaults().withDefaults())
	assert.Equal(t, 3*time.Second, Retry{Jitter: -1, BaseDelay: time.Second, Multiplier: 3}.delay(2, 1))
}

// Whatever the settings, a pause is never negative, never above the longest, and no shorter for
// more failures but for the jitter.
func TestDelayBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := Retry{
			BaseDelay:  time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "base")),
			Multiplier: rapid.Float64Range(1, 10).Draw(t, "multiplier"), Jitter: rapid.Float64Range(0.01, 0.99).Draw(t, "jitter"),
		}
		r.MaxDelay = r.BaseDelay * time.Duration(rapid.IntRange(1, 1000).Draw(t, "times"))
		require.NoError(t, r.Check())
		n, chance := rapid.IntRange(1, 100).Draw(t, "n"), rapid.Float64Range(0, 1).Draw(t, "chance")
		pause := r.delay(n, chance)
		require.GreaterOrEqual(t, pause, time.Duration(0))
		require.LessOrEqual(t, pause, r.MaxDelay)
		require.GreaterOrEqual(t, r.delay(n+1, chance)+1, pause)
	})
}

func TestRetryCheck(t *testing.T) {
	t.Parallel()
	require.NoError(t, Retry{}.Check())
	for want, r := range map[string]Retry{
		"MaxAttempts is -1": {MaxAttempts: -1},
		"delays go from":    {BaseDelay: time.Hour},
		"from -1s":          {BaseDelay: -time.Second},
		"Multiplier is 0.5": {Multiplier: 0.5},
		"Multiplier is NaN": {Multiplier: math.NaN()},
		"Jitter is 1":       {Jitter: 1},
	} {
		assert.ErrorContains(t, r.Check(), want)
	}
}
