package relay_test

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

// What the policy says is what stands in the row: base, multiplier, cap, jitter and attempts. That
// the file says what the policy says is tested in config.
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

// delays lists how long the rows that have failed so often must wait, counted from their failure,
// by their names.
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
