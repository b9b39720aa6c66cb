package integration_test

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

// counting is a writer in a process of its own, of some version.
type counting struct {
	*testing.T

	cmd       *exec.Cmd
	said, log bytes.Buffer
}

func startCounting(t *testing.T, program string, args ...string) *counting {
	t.Helper()
	c := &counting{T: t, cmd: exec.Command(program, args...)} //nolint:noctx // it is stopped by a signal
	c.cmd.Stdout, c.cmd.Stderr = &c.said, &c.log
	require.NoError(t, c.cmd.Start())
	t.Cleanup(func() { _ = c.cmd.Process.Kill() })
	return c
}

// stop ends the writer, and adds what it has committed to the ledger.
func (c *counting) stop(ledger map[string]bool) {
	c.Helper()
	require.NoError(c, c.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(c, c.cmd.Wait(), c.log.String())
	for line := range strings.Lines(c.said.String()) {
		require.Regexp(c, `^k\d+ \d+\n$`, line, "the ledger holds commits alone")
		require.False(c, ledger[line], line)
		ledger[line] = true
	}
}

// relayOf starts a relay of some version.
func (b *bench) relayOf(program string) *relayProcess {
	b.Helper()
	r := &relayProcess{t: b.T, log: new(relayLog)}
	r.cmd = exec.Command(program, "relay", "--config", b.config, "--log-json") //nolint:noctx // it is stopped by a signal
	r.cmd.Stderr = r.log
	require.NoError(b, r.cmd.Start())
	b.Cleanup(func() { _ = r.cmd.Process.Kill() })
	return r
}

// The previous version and this one write to, and deliver from, one database at the same time, the
// same keys; relays of each are killed, stopped and started meanwhile. Nothing is lost, and each
// key keeps its order.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	testenv.NeedLong(t) // it builds another version
	before, now := previousVersion(t), currentVersion(t)
	t.Logf("beside %s", before.name)
	b := newBench(newPlace(t, outbox.Postgres))
	shop := contextName(testenv.RedisPrefix(t))
	b.stream = shop + "::counter"
	cleanStreams(t, testenv.Redis(t), b.stream)
	b.configure(fmt.Sprintf("outbox: {external_brokers: [], lease: 3s, publish_timeout: 1s, batch_size: 20}\nbrokers:\n  default: {type: redis, url: %q}\n", testenv.Redis(t)))
	migrated := run(t, "migrate", "--config", b.config)
	require.Zero(t, migrated.code, migrated.stderr)
	_, err := b.db.ExecContext(t.Context(), `CREATE TABLE counters (id text PRIMARY KEY, n bigint NOT NULL);
		INSERT INTO counters SELECT 'k' || n, 0 FROM generate_series(0, 9) AS n`)
	require.NoError(t, err)
	args := []string{b.dsn, shop}
	for k := range 10 {
		args = append(args, fmt.Sprint("k", k))
	}

	writers := []*counting{startCounting(t, before.writer, args...), startCounting(t, now.writer, args...)}
	old := b.relayOf(before.relay)
	await := func(n int) {
		target := b.arrived() + n
		eventually(t, func() bool { return b.arrived() >= target })
	}
	await(150)
	fresh := b.relayOf(now.relay) // the first one is replaced
	await(150)
	require.NoError(t, old.cmd.Process.Kill())
	_ = old.cmd.Wait()
	await(150)
	old = b.relayOf(before.relay) // the upgrade is undone
	await(150)
	code, _ := fresh.stop()
	assert.Zero(t, code, fresh.log.String())
	await(150)
	fresh = b.relayOf(now.relay)
	await(150)
	code, _ = old.stop()
	assert.Zero(t, code, old.log.String())
	ledger := map[string]bool{}
	for _, writer := range writers {
		committed := len(ledger)
		writer.stop(ledger)
		assert.Greater(t, len(ledger), committed+100, "each has written its share")
	}
	eventually(t, func() bool { return b.count("finished_at IS NULL") == 0 })
	code, _ = fresh.stop()
	assert.Zero(t, code, fresh.log.String())
	assert.Equal(t, len(ledger), b.count("status = 'published' AND attempts = 1"))

	entries, err := b.redis.XRange(t.Context(), b.stream, "-", "+").Result()
	require.NoError(t, err)
	last, seen := map[string]int{}, map[string]bool{}
	for _, entry := range entries {
		data, _ := entry.Values["data"].(string)
		message, err := envelope.DecodeInternal([]byte(data))
		require.NoError(t, err)
		counted, err := envelope.DataAs[Counted](message.Data)
		require.NoError(t, err)
		require.LessOrEqual(t, counted.N, last[counted.Key]+1, "order of %s", counted.Key)
		last[counted.Key] = max(last[counted.Key], counted.N)
		seen[fmt.Sprintln(counted.Key, counted.N)] = true
	}
	assert.Equal(t, ledger, seen)
	t.Logf("%d messages, %d second copies", len(seen), len(entries)-len(seen))
}
