package integration_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorm-fanout/fanout/internal/testenv"
)

// binary is the command under test, built once.
var binary string //nolint:gochecknoglobals // made in TestMain

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		os.Exit(child())
	}
	dir, err := os.MkdirTemp("", "fanout-integration-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "fanout")
	testenv.UsesAllFiles()
	if out, err := exec.Command("go", "build", "-o", binary, "../cmd/fanout").CombinedOutput(); err != nil { //nolint:noctx // as long as it takes
		panic(string(out))
	}
	cleanup := func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}
	// A library that Pub/Sub links starts a goroutine when it is loaded.
	goleak.VerifyTestMain(m, goleak.Cleanup(cleanup), goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// outcome is what a finished command left behind.
type outcome struct {
	code           int
	stdout, stderr string
}

// run runs the command to its end.
func run(t *testing.T, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil {
		require.ErrorAs(t, err, &exit, "%s", stderr.String())
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// bench is one database and one stream prefix for a test with real servers.
type bench struct {
	t      *testing.T
	config string
	db     *sql.DB
	redis  *redis.Client
	stream string
	dsn    string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dsn, redisURL := testenv.Postgres(t), testenv.Redis(t)
	b := &bench{t: t, dsn: dsn, stream: testenv.RedisPrefix(t) + "ordering::order", config: filepath.Join(t.TempDir(), "fanout.yaml")}
	b.write(`
databases:
  default: {driver: postgres, dsn: "` + dsn + `"}
outbox: {batch_size: 100, external_brokers: []}
brokers:
  default: {type: redis, url: "` + redisURL + `"}
`)
	var err error
	b.db, err = sql.Open("pgx", dsn)
	require.NoError(t, err)
	options, err := redis.ParseURL(redisURL)
	require.NoError(t, err)
	b.redis = redis.NewClient(options)
	t.Cleanup(func() { _, _ = b.db.Close(), b.redis.Close() })
	return b
}

func (b *bench) write(config string) {
	b.t.Helper()
	require.NoError(b.t, os.WriteFile(b.config, []byte(config), 0o600))
}

func (b *bench) run(args ...string) outcome {
	b.t.Helper()
	return run(b.t, append(args, "--config", b.config)...)
}

// insert writes rows as any program in any language can: only what is required, and a key.
func (b *bench) insert(n int) {
	b.t.Helper()
	_, err := b.db.ExecContext(b.t.Context(), `INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, payload)
		SELECT gen_random_uuid(), 'default', $1::text, 'Ordering.OrderPlaced.v1', 'order-' || (n % 97),
		       convert_to(json_build_object('key', n % 97, 'n', n)::text, 'UTF8')
		  FROM generate_series(1, $2::int) AS n`, b.stream, n)
	require.NoError(b.t, err)
}

func (b *bench) count(where string) int {
	b.t.Helper()
	var n int
	require.NoError(b.t, b.db.QueryRowContext(b.t.Context(), "SELECT count(*) FROM outbox_messages WHERE "+where).Scan(&n))
	return n
}

func (b *bench) arrived() int {
	b.t.Helper()
	n, err := b.redis.XLen(b.t.Context(), b.stream).Result()
	require.NoError(b.t, err)
	return int(n)
}

// relay is a relay in a process of its own.
type relayProcess struct {
	t   *testing.T
	cmd *exec.Cmd
	log *bytes.Buffer
}

func (b *bench) relay() *relayProcess {
	b.t.Helper()
	r := &relayProcess{t: b.t, log: new(bytes.Buffer)}
	r.cmd = exec.Command(binary, "relay", "--config", b.config, "--log-json") //nolint:noctx // it is stopped by a signal
	r.cmd.Stderr = r.log
	require.NoError(b.t, r.cmd.Start())
	b.t.Cleanup(func() { _ = r.cmd.Process.Kill() })
	return r
}

// stop asks the relay to stop and returns its exit code and how many rows it published.
func (r *relayProcess) stop() (code, published int) {
	r.t.Helper()
	require.NoError(r.t, r.cmd.Process.Signal(syscall.SIGTERM))
	_ = r.cmd.Wait() // the code tells
	for line := range strings.Lines(r.log.String()) {
		var entry struct {
			Msg       string `json:"msg"`
			Published int    `json:"published"`
		}
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "processor stopped" {
			published += entry.Published
		}
	}
	return r.cmd.ProcessState.ExitCode(), published
}

// eventually waits for processes whose clock is not ours.
func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, time.Minute, 10*time.Millisecond)
}

func (b *bench) checkOrder(want int) {
	b.t.Helper()
	entries, err := b.redis.XRange(b.t.Context(), b.stream, "-", "+").Result()
	require.NoError(b.t, err)
	require.Len(b.t, entries, want)
	last, seen := map[int]int{}, map[any]bool{}
	for _, entry := range entries {
		var payload struct{ Key, N int }
		data, ok := entry.Values["data"].(string)
		require.True(b.t, ok)
		require.NoError(b.t, json.Unmarshal([]byte(data), &payload))
		require.Greater(b.t, payload.N, last[payload.Key], "order of key %d", payload.Key)
		last[payload.Key] = payload.N
		require.False(b.t, seen[entry.Values["id"]], "delivered twice")
		seen[entry.Values["id"]] = true
	}
}
