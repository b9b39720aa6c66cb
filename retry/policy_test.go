package retry_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/retry"
)

func TestDelays(t *testing.T) {
	t.Parallel()
	plain := retry.Policy{MaxAttempts: 9, BaseDelay: time.Minute, Multiplier: 2, MaxDelay: time.Hour, Jitter: -1}
	want := []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60}
	for i, minutes := range want {
		assert.Equal(t, minutes*time.Minute, plain.Delay(i+1), "after %d failures", i+1)
	}
	assert.Equal(t, time.Hour, plain.Delay(5000), "no overflow")

	configured := retry.Policy{MaxAttempts: 3, BaseDelay: time.Second, Multiplier: 3, MaxDelay: 5 * time.Second, Jitter: -1}
	assert.Equal(t, time.Second, configured.Delay(1))
	assert.Equal(t, 3*time.Second, configured.Delay(2))
	assert.Equal(t, 5*time.Second, configured.Delay(3))
}

// The jitter is uniform over +-25 %, after every failure: each tenth of the range gets a tenth of
// the delays. At the cap the upper half of them is the cap itself. The bounds are eight standard
// deviations wide.
func TestJitter(t *testing.T) {
	t.Parallel()
	const n, buckets = 20000, 10
	share := func(count int) float64 { return float64(count) / n }
	sigma := func(p float64) float64 { return math.Sqrt(p * (1 - p) / n) }
	for _, policy := range []retry.Policy{{BaseDelay: time.Minute, Multiplier: 2, MaxDelay: time.Hour}, {MaxAttempts: 9, BaseDelay: 3 * time.Second, Multiplier: 2.5, MaxDelay: time.Minute, Jitter: 0.25}} {
		for failures := 1; failures <= 8; failures++ {
			middle := min(float64(policy.BaseDelay)*math.Pow(policy.Multiplier, float64(failures-1)), float64(policy.MaxDelay))
			capped, sum, low, high, histogram := 0, 0.0, math.Inf(1), 0.0, make([]int, buckets)
			for range n {
				delay := policy.Delay(failures)
				require.LessOrEqual(t, delay, policy.MaxDelay, "the cap holds after the jitter")
				if delay == policy.MaxDelay {
					capped++
					continue
				}
				x := float64(delay) / middle
				sum, low, high = sum+x, min(low, x), max(high, x)
				histogram[min(int((x-0.75)/0.5*buckets), buckets-1)]++
			}
			require.GreaterOrEqual(t, low, 0.75)
			require.LessOrEqual(t, high, 1.25+1e-9)
			// What is left of the range below the cap.
			limit := min(1.25, float64(policy.MaxDelay)/middle)
			assert.InDelta(t, (1.25-limit)/0.5, share(capped), 8*sigma(0.5), "after %d failures", failures)
			for i, count := range histogram {
				from, to := 0.75+0.5*float64(i)/buckets, 0.75+0.5*float64(i+1)/buckets
				want := max(0, (min(to, limit)-from)/0.5)
				assert.InDelta(t, want, share(count), 8*sigma(0.1)+1e-9, "after %d failures, %.2f to %.2f", failures, from, to)
			}
			assert.InDelta(t, (0.75+limit)/2, sum/float64(n-capped), 8*0.5/math.Sqrt(12)/math.Sqrt(n/2), "after %d failures", failures)
		}
	}
}

// Whatever the settings, a delay is within the jitter of the middle, never negative and never above
// the longest; without jitter, it is no shorter for more failures.
func TestDelayBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := retry.Policy{
			MaxAttempts: 1, BaseDelay: time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "base")),
			Multiplier: rapid.Float64Range(1, 10).Draw(t, "multiplier"), Jitter: rapid.Float64Range(0.01, 1).Draw(t, "jitter"),
		}
		p.MaxDelay = p.BaseDelay * time.Duration(rapid.IntRange(1, 1000).Draw(t, "times"))
		require.NoError(t, p.Validate())
		n, plain := rapid.IntRange(1, 100).Draw(t, "n"), p
		plain.Jitter = -1
		delay, middle := p.Delay(n), plain.Delay(n)
		require.GreaterOrEqual(t, delay, time.Duration(0))
		require.LessOrEqual(t, delay, p.MaxDelay)
		require.InDelta(t, float64(middle), float64(delay), p.Jitter*float64(middle)+2)
		require.GreaterOrEqual(t, plain.Delay(n+1), middle)
	})
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	defaults := retry.Policy{MaxAttempts: 10, BaseDelay: time.Second, MaxDelay: time.Minute}
	full := retry.Policy{}.WithDefaults(defaults)
	assert.Equal(t, retry.Policy{MaxAttempts: 10, BaseDelay: time.Second, MaxDelay: time.Minute, Multiplier: 2, Jitter: 0.25}, full)
	assert.Equal(t, full, full.WithDefaults(retry.Policy{MaxAttempts: 3, BaseDelay: time.Hour, Multiplier: 9, MaxDelay: 9 * time.Hour, Jitter: -1}))
	assert.Equal(t, time.Hour, retry.Policy{BaseDelay: time.Hour}.WithDefaults(defaults).MaxDelay, "never below the first")
	short := retry.Policy{MaxDelay: 500 * time.Millisecond}.WithDefaults(defaults)
	assert.Equal(t, 500*time.Millisecond, short.BaseDelay, "never above the longest")
	assert.NoError(t, short.Validate())
	assert.Equal(t, short, short.WithDefaults(defaults))
	assert.ErrorContains(t, retry.Policy{MaxDelay: -1}.WithDefaults(defaults).Validate(), "retry.max_delay is -1ns, below base_delay (1s)")
	assert.Equal(t, 3*time.Second, retry.Policy{BaseDelay: 3 * time.Second, Jitter: -1}.Delay(7), "no longest delay: the first")
}

func TestValidate(t *testing.T) {
	t.Parallel()
	good := retry.Policy{MaxAttempts: 1, BaseDelay: time.Second, MaxDelay: time.Second, Multiplier: 1, Jitter: 1}
	require.NoError(t, good.Validate())
	err := retry.Policy{MaxAttempts: -1, BaseDelay: -time.Second, Multiplier: 0.5, MaxDelay: -time.Minute, Jitter: 2}.Validate()
	for _, text := range []string{
		"retry.max_attempts is -1", "retry.base_delay is -1s", "retry.multiplier is 0.5", "retry.max_delay is -1m0s", "retry.jitter is 2",
	} {
		require.ErrorContains(t, err, text)
	}
	for want, spoil := range map[string]func(p *retry.Policy){
		"retry.multiplier is NaN":  func(p *retry.Policy) { p.Multiplier = math.NaN() },
		"retry.multiplier is +Inf": func(p *retry.Policy) { p.Multiplier = math.Inf(1) },
		"retry.jitter is NaN":      func(p *retry.Policy) { p.Jitter = math.NaN() },
		"below base_delay (1s)":    func(p *retry.Policy) { p.MaxDelay = time.Millisecond },
	} {
		p := good
		spoil(&p)
		require.ErrorContains(t, p.Validate(), want)
	}
}
