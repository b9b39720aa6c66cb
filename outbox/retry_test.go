package outbox_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
)

func TestRetryDelays(t *testing.T) {
	t.Parallel()
	plain := outbox.Retry{MaxAttempts: 9, BaseDelay: time.Minute, Multiplier: 2, MaxDelay: time.Hour, Jitter: -1}.WithDefaults()
	want := []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60}
	for i, minutes := range want {
		assert.Equal(t, minutes*time.Minute, plain.Delay(i+1), "after %d failures", i+1)
	}
	assert.Equal(t, time.Hour, plain.Delay(5000), "no overflow")

	configured := outbox.Retry{MaxAttempts: 3, BaseDelay: time.Second, Multiplier: 3, MaxDelay: 5 * time.Second, Jitter: -1}.WithDefaults()
	assert.Equal(t, time.Second, configured.Delay(1))
	assert.Equal(t, 3*time.Second, configured.Delay(2))
	assert.Equal(t, 5*time.Second, configured.Delay(3))
}

// The jitter is uniform over +-25 %: bounds, mean and spread are those of the uniform distribution, and the cap holds
// after it.
func TestRetryJitter(t *testing.T) {
	t.Parallel()
	retry := outbox.DefaultRetry()
	const n = 20000
	var sum, squares, low, high float64 = 0, 0, math.Inf(1), 0
	for range n {
		x := float64(retry.Delay(1)) / float64(time.Minute)
		sum, squares, low, high = sum+x, squares+x*x, min(low, x), max(high, x)
	}
	mean := sum / n
	assert.GreaterOrEqual(t, low, 0.75)
	assert.LessOrEqual(t, high, 1.25+1e-9)
	assert.InDelta(t, 1, mean, 0.01)
	assert.InDelta(t, 0.5/math.Sqrt(12), math.Sqrt(squares/n-mean*mean), 0.01)
	for range 1000 {
		assert.LessOrEqual(t, retry.Delay(20), time.Hour)
	}
}

func TestRetryValidate(t *testing.T) {
	t.Parallel()
	require.NoError(t, outbox.Retry{}.Validate())
	err := outbox.Retry{MaxAttempts: -1, BaseDelay: -time.Second, Multiplier: 0.5, MaxDelay: -time.Minute, Jitter: 2}.Validate()
	for _, key := range []string{"max_attempts", "base_delay", "multiplier", "max_delay", "jitter"} {
		require.ErrorContains(t, err, "retry."+key)
	}
}

func TestPolicyValidate(t *testing.T) {
	t.Parallel()
	require.NoError(t, outbox.Policy{}.Validate())
	err := outbox.Policy{
		Workers: -1, BatchSize: outbox.MaxBatchSize + 1, Lease: time.Second, PublishTimeout: 2 * time.Second,
		PollMin: time.Minute, PollMax: time.Second,
	}.Validate()
	for _, text := range []string{"workers is -1", "batch_size is 2001", "publish_timeout (2s) must be below lease (1s)", "poll.max (1s) is below poll.min (1m0s)"} {
		require.ErrorContains(t, err, text)
	}
}
