package outbox_test

import (
	"context"
	"errors"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
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

// The jitter is uniform over +-25 %, after every failure: each tenth of the range gets a tenth of the delays. At the cap the
// upper half of them is the cap itself. The bounds are eight standard deviations wide.
func TestRetryJitter(t *testing.T) {
	t.Parallel()
	const n, buckets = 20000, 10
	share := func(count int) float64 { return float64(count) / n }
	sigma := func(p float64) float64 { return math.Sqrt(p * (1 - p) / n) }
	for _, retry := range []outbox.Retry{outbox.DefaultRetry(), {MaxAttempts: 9, BaseDelay: 3 * time.Second, Multiplier: 2.5, MaxDelay: time.Minute, Jitter: 0.25}} {
		for failures := 1; failures <= 8; failures++ {
			middle := min(float64(retry.BaseDelay)*math.Pow(retry.Multiplier, float64(failures-1)), float64(retry.MaxDelay))
			capped, sum, low, high, histogram := 0, 0.0, math.Inf(1), 0.0, make([]int, buckets)
			for range n {
				delay := retry.Delay(failures)
				require.LessOrEqual(t, delay, retry.MaxDelay, "the cap holds after the jitter")
				if delay == retry.MaxDelay {
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
			limit := min(1.25, float64(retry.MaxDelay)/middle)
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

// What the policy says is what stands in the row: base, multiplier, cap, jitter and attempts. That the file says what the policy says
// is tested in config.
func TestRetryFromThePolicyToTheRow(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		policy := outbox.Policy{
			PollMin: 5 * time.Second, PollMax: 5 * time.Second,
			Retry: outbox.Retry{MaxAttempts: 5, BaseDelay: 20 * time.Second, Multiplier: 3, MaxDelay: 5 * time.Minute, Jitter: 0.2},
		}
		broker := &fake{publish: func(context.Context, brokers.Message) error { return brokers.Retryable(errors.New("no luck")) }}
		r := newRig(t, path, broker, policy)
		t.Cleanup(func() { _ = r.db.Close() })
		const rows = 400
		for i := range rows {
			r.insert("", strconv.Itoa(i))
		}
		r.start()
		const longest = 5 * time.Minute // the cap; the fourth delay would be 9 minutes
		for i, middle := range []time.Duration{20 * time.Second, time.Minute, 3 * time.Minute, longest} {
			delays, capped := map[string]time.Duration{}, 0
			for len(delays) < rows {
				time.Sleep(5 * time.Second)
				delays = r.delays(i + 1)
			}
			sum, different := 0.0, map[time.Duration]bool{}
			for _, delay := range delays {
				require.GreaterOrEqual(t, delay, middle*8/10)
				require.LessOrEqual(t, delay, min(middle*12/10, longest))
				if delay == longest {
					capped++
				}
				sum, different[delay] = sum+float64(delay)/float64(middle), true
			}
			want := 1.0
			if middle == longest { // then half of them are at the cap, and the others uniform below
				want = 0.95
				assert.InDelta(t, rows/2, capped, 8*math.Sqrt(rows)/2)
			}
			assert.InDelta(t, want, sum/rows, 8*0.4/math.Sqrt(12*rows), "after %d failures", i+1)
			assert.Greater(t, len(different), rows/3, "each row has a delay of its own")
		}
		r.until(10*time.Minute, func() bool { return r.open() == "0" })
		r.stop()
		assert.Equal(t, strconv.Itoa(rows), r.query("SELECT count(*) FROM outbox_messages WHERE status = 'abandoned' AND attempts = 5"))
	})
}

// delays lists how long the rows that have failed so often must wait, counted from their failure, by their names.
func (r *rig) delays(attempts int) map[string]time.Duration {
	r.t.Helper()
	rows, err := r.db.QueryContext(r.t.Context(), `SELECT CAST(payload AS TEXT), locked_until, last_error ->> 'at' FROM outbox_messages
		WHERE status = 'failed' AND attempts = ?`, attempts)
	require.NoError(r.t, err)
	defer rows.Close()
	delays := map[string]time.Duration{}
	for rows.Next() {
		var name, at string
		var until int64
		require.NoError(r.t, rows.Scan(&name, &until, &at))
		failed, err := time.Parse(time.RFC3339Nano, at)
		require.NoError(r.t, err)
		delays[name] = time.UnixMicro(until).Sub(failed).Round(time.Millisecond)
	}
	require.NoError(r.t, rows.Err())
	return delays
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
		PollMin: time.Minute, PollMax: time.Second, Rate: -1, Breaker: outbox.Breaker{TripAfter: -1, MinDelay: -1},
	}.Validate()
	for _, text := range []string{
		"rate is -1", "breaker.trip_after is -1", "breaker.min_delay is -1ns",
		"workers is -1", "batch_size is 2001", "publish_timeout (2s) must be below lease (1s)", "poll.max (1s) is below poll.min (1m0s)",
	} {
		require.ErrorContains(t, err, text)
	}
}
