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
	"github.com/stretchr/testify/assert"
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
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dsn, redisURL := testenv.Postgres(t), testenv.Redis(t)
	b := &bench{t: t, stream: testenv.RedisPrefix(t) + "ordering::order", config: filepath.Join(t.TempDir(), "fanout.yaml")}
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
type relay struct {
	t   *testing.T
	cmd *exec.Cmd
	log *bytes.Buffer
}

func (b *bench) relay() *relay {
	b.t.Helper()
	r := &relay{t: b.t, log: new(bytes.Buffer)}
	r.cmd = exec.Command(binary, "relay", "--config", b.config, "--log-json") //nolint:noctx // it is stopped by a signal
	r.cmd.Stderr = r.log
	require.NoError(b.t, r.cmd.Start())
	b.t.Cleanup(func() { _ = r.cmd.Process.Kill() })
	return r
}

// stop asks the relay to stop and returns its exit code and how many rows it published.
func (r *relay) stop() (code, published int) {
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

// Rows written by plain SQL arrive once and in the order of their keys; a stop in the middle loses nothing and exits
// with 0; started again, the relay finishes; and two relays share the work.
func TestRelayProcess(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	require.Zero(t, b.run("migrate").code)
	require.Zero(t, b.run("validate").code)
	const rows = 10000
	b.insert(rows)

	first := b.relay()
	eventually(t, func() bool { return b.arrived() > rows/10 })
	code, published := first.stop()
	assert.Zero(t, code, first.log.String())
	assert.Zero(t, b.count("status = 'processing'"), "nothing stays leased")
	assert.Equal(t, published, b.count("status = 'published' AND attempts = 1"))
	assert.Equal(t, rows-published, b.count("status = 'pending' AND attempts = 0"))

	second, third := b.relay(), b.relay()
	eventually(t, func() bool { return b.count("finished_at IS NULL") == 0 })
	code2, published2 := second.stop()
	code3, published3 := third.stop()
	assert.Zero(t, code2+code3)
	assert.Equal(t, rows, published+published2+published3)
	assert.Equal(t, rows, b.count("status = 'published'"))
	b.checkOrder(rows)

	status := b.run("status", "--json")
	require.Zero(t, status.code)
	var answer map[string]struct {
		Status string
		Counts map[string]int
	}
	require.NoError(t, json.Unmarshal([]byte(status.stdout), &answer))
	assert.Equal(t, rows, answer["default"].Counts["published"])
}

// A malformed row written by hand is abandoned with its reason and does not hold up its neighbours.
func TestMalformedRows(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	require.Zero(t, b.run("migrate").code)
	b.insert(100)
	_, err := b.db.ExecContext(t.Context(), "UPDATE outbox_messages SET headers = '{broken' WHERE ordering_key = 'order-5'")
	require.NoError(t, err)
	bad := b.count("headers IS NOT NULL")
	r := b.relay()
	eventually(t, func() bool { return b.count("finished_at IS NULL") == 0 })
	code, _ := r.stop()
	assert.Zero(t, code)
	assert.Equal(t, bad, b.count(`status = 'abandoned' AND last_error LIKE '%malformed%headers%'`))
	assert.Equal(t, 100-bad, b.count("status = 'published'"))
	assert.Contains(t, b.run("status").stdout, "malformed: ")
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	good, err := os.ReadFile(b.config)
	require.NoError(t, err)

	for _, command := range []string{"relay", "validate", "status"} {
		missing := b.run(command)
		assert.Equal(t, 1, missing.code, command)
		assert.Contains(t, missing.stdout+missing.stderr, `run "fanout migrate"`, command)
	}

	b.write(string(good) + "bokers: {}\ncleanup: {interval: -5s, batch_size: many}\n")
	for _, command := range []string{"relay", "validate", "status", "migrate"} {
		wrong := b.run(command)
		assert.Equal(t, 2, wrong.code, command)
		for _, text := range []string{"bokers", "cleanup.interval", "cleanup.batch_size", b.config + ":"} {
			assert.Contains(t, wrong.stderr, text, command)
		}
	}

	b.write(strings.ReplaceAll(string(good), "127.0.0.1", "user:hunter2@127.0.0.1:1,127.0.0.1"))
	unreachable := b.run("relay")
	assert.NotZero(t, unreachable.code)
	assert.NotContains(t, unreachable.stderr, "hunter2")

	for _, args := range [][]string{{"nonsense"}, {"relay", "--nonsense"}, {"relay", "extra"}, {"demo", "--orders", "0"}, {"relay", "--config", "/does/not/exist"}, {"relay", "--workers", "-1"}, {"relay", "--log-level", "loud", "--config", b.config}} {
		assert.Equal(t, 2, run(t, args...).code, args)
	}
	assert.Zero(t, run(t, "--help").code)
}

func TestPrintMigrations(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "fanout.yaml")
	require.NoError(t, os.WriteFile(config, []byte(`
databases: {a: {driver: postgres}, b: {driver: sqlserver}, c: {driver: sqlite}}
outbox: {table: my_outbox}
brokers: {default: {type: memory}}
`), 0o600))
	printed := run(t, "migrate", "--print", "--config", config)
	require.Zero(t, printed.code, printed.stderr)
	assert.Equal(t, 3, strings.Count(printed.stdout, "CREATE TABLE my_outbox ("))
}

// The statement of docs/plain-sql.md sends abandoned rows again.
func TestAbandonedRowsAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	require.Zero(t, b.run("migrate").code)
	b.insert(10)
	_, err := b.db.ExecContext(t.Context(), "UPDATE outbox_messages SET content_type = 'nonsense'")
	require.NoError(t, err)
	r := b.relay()
	eventually(t, func() bool { return b.count("status = 'abandoned'") == 10 })

	document, err := os.ReadFile("../docs/plain-sql.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(document), "```sql\nUPDATE")
	require.True(t, ok)
	statement, _, _ := strings.Cut("UPDATE"+rest, "```")
	statement = strings.Replace(statement, "'partner'", "'default'", 1)
	_, err = b.db.ExecContext(t.Context(), "UPDATE outbox_messages SET content_type = 'application/json'")
	require.NoError(t, err)
	_, err = b.db.ExecContext(t.Context(), statement)
	require.NoError(t, err)
	eventually(t, func() bool { return b.count("status = 'published' AND attempts = 1") == 10 })
	code, _ := r.stop()
	assert.Zero(t, code)
}

// Rows that nobody delivers are named.
func TestOrphans(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	require.Zero(t, b.run("migrate").code)
	b.insert(3)
	_, err := b.db.ExecContext(t.Context(), "UPDATE outbox_messages SET target_broker = 'removed'")
	require.NoError(t, err)
	validated := b.run("validate")
	assert.Zero(t, validated.code)
	assert.Contains(t, validated.stderr, `rows wait for broker "removed", which is not configured`)
	assert.Contains(t, validated.stdout, "broker default: reached")
	assert.Contains(t, b.run("status").stdout, "removed (not configured!)")
}
