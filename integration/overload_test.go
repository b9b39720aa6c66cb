package integration_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

// overloadVariable is for how long producers outrun the drain, as in 5m. Default: 8s.
const overloadVariable = "FANOUT_TEST_OVERLOAD"

const (
	overloadRate    = 1000 // messages per second that the broker is given
	overloadWritten = 300  // rows per tenth of a second
)

// overload is a broker that is slower than what is written for it.
type overload struct {
	*bench

	rows int
}

// limit limits the broker to a rate, or lets it go as fast as it can.
func (o *overload) limit(limit string) {
	o.Helper()
	o.configure(fmt.Sprintf("outbox: {external_brokers: []}\nbrokers:\n  default: {type: redis, url: %q%s}\n", testenv.Redis(o), limit))
}

// add writes rows, half of them of one hot key.
func (o *overload) add(n int) {
	o.Helper()
	rows := make([]outbox.Row, n)
	for i := range rows {
		at := o.rows + i + 1
		key := 0
		if at%2 != 0 {
			key = at % 97
		}
		rows[i] = numbered("default", o.stream, key, at)
	}
	o.write(rows...)
	o.rows += n
}

// lag is the age of the oldest row that is not finished, as the status tells an operator.
func (o *overload) lag() time.Duration {
	o.Helper()
	status := o.run("status", "--json")
	require.Zero(o, status.code, status.stderr)
	var answer map[string]struct {
		Brokers map[string]struct {
			OldestPending float64 `json:"oldest_pending_seconds"`
		}
	}
	require.NoError(o, json.Unmarshal([]byte(status.stdout), &answer), status.stdout)
	require.Contains(o, answer["default"].Brokers, "default", status.stdout)
	return time.Duration(answer["default"].Brokers["default"].OldestPending * float64(time.Second))
}

// memory is what a process holds of the machine's memory, in kilobytes; 0 where /proc does not
// tell.
func (r *relayProcess) memory() int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	field, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	kilobytes, _ := strconv.Atoi(field)
	return kilobytes
}

// Producers outrun the drain for a while, half of their messages of one key: the relay's memory
// stays as it is, whatever waits, and the lag is there for everybody to see. With the limit gone
// the backlog is drained, in order, with nothing lost and nobody charged.
func TestOverload(t *testing.T) {
	t.Parallel()
	if os.Getenv(overloadVariable) == "" {
		testenv.NeedLong(t)
	}
	onServersInTurn(t, testOverload)
}

func testOverload(t *testing.T, p *place) {
	t.Helper()
	span := 8 * time.Second
	if given := os.Getenv(overloadVariable); given != "" {
		var err error
		span, err = time.ParseDuration(given)
		require.NoError(t, err, overloadVariable)
	}
	o := &overload{bench: newBench(p)}
	o.limit(fmt.Sprintf(", rate: %d", overloadRate))
	require.Zero(t, o.run("migrate").code)
	r := o.relay()
	var lags []time.Duration
	var sizes []int
	ticks := time.NewTicker(100 * time.Millisecond)
	defer ticks.Stop()
	const samples = 8
	began := time.Now()
	for next := span / samples; len(sizes) < samples; <-ticks.C {
		elapsed := time.Since(began)
		if due := int(elapsed/(100*time.Millisecond)+1)*overloadWritten - o.rows; due > 0 { // a busy machine drops ticks, and producers do not wait for it
			o.add(due)
		}
		if elapsed >= next {
			lags, sizes = append(lags, o.lag()), append(sizes, r.memory())
			next += span / samples
		}
	}
	backlog := o.count("finished_at IS NULL")
	t.Logf("%d rows in %s, %d of them wait; lag %v; memory %v kB", o.rows, time.Since(began).Round(time.Second), backlog, lags, sizes)
	assert.Greater(t, backlog, o.rows/4, "the drain was outrun")
	assert.Greater(t, lags[samples-1], lags[samples/4], "the lag grows")
	assert.Greater(t, lags[samples-1], span/8)
	completed := sizes[samples/4]
	assert.LessOrEqual(t, sizes[samples-1], completed+completed/2, "memory does not follow the backlog")
	assert.Less(t, sizes[samples-1], 300<<10, "300 MB")

	code, _ := r.stop()
	assert.Zero(t, code)
	o.limit("")
	r, began = o.relay(), time.Now()
	require.Eventually(t, func() bool { return o.count("finished_at IS NULL") == 0 }, time.Minute+span, 20*time.Millisecond)
	t.Logf("drained within %s; memory %d kB", time.Since(began).Round(10*time.Millisecond), r.memory())
	code, _ = r.stop()
	assert.Zero(t, code)
	assert.Equal(t, o.rows, o.count("status = 'published' AND attempts = 1"))
	o.checkOrder(o.rows)
}
