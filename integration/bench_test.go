package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

// programs is the folder of the programs that tests build.
var programs string //nolint:gochecknoglobals // made in TestMain

// fanoutCommand is the path of the command under test. The first test that needs it builds it.
var fanoutCommand = sync.OnceValue(func() string {
	path := filepath.Join(programs, "fanout")
	if out, err := exec.Command("go", "build", "-ldflags=-w", "-o", path, "../cmd/fanout").CombinedOutput(); err != nil {
		panic(string(out))
	}
	return path
})

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		os.Exit(child())
	}
	var err error
	if programs, err = os.MkdirTemp("", "fanout-integration-"); err != nil {
		panic(err)
	}
	cleanup := func(code int) {
		_ = os.RemoveAll(programs)
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
	program := fanoutCommand()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
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
	*place

	config string
	redis  *redis.Client
	stream string
}

func newBench(p *place) *bench {
	p.Helper()
	redisURL := testenv.Redis(p)
	b := &bench{place: p, stream: testenv.RedisPrefix(p) + "ordering::order", config: filepath.Join(p.TempDir(), "fanout.yaml")}
	b.configure(fmt.Sprintf("outbox: {batch_size: 100, external_brokers: []}\nbrokers:\n  default: {type: redis, url: %q}\n", redisURL))
	options, err := redis.ParseURL(redisURL)
	require.NoError(p, err)
	b.redis = redis.NewClient(options)
	p.Cleanup(func() { _ = b.redis.Close() })
	return b
}

// configure writes the configuration, with the database in front.
func (b *bench) configure(rest string) {
	b.Helper()
	b.rewrite(b.yaml() + rest)
}

// rewrite writes all of it.
func (b *bench) rewrite(config string) {
	b.Helper()
	require.NoError(b, os.WriteFile(b.config, []byte(config), 0o600))
}

func (b *bench) run(args ...string) outcome {
	b.Helper()
	return run(b.T, append(args, "--config", b.config)...)
}

// insert writes the first n messages of 97 keys.
func (b *bench) insert(n int) {
	b.Helper()
	rows := make([]outbox.Row, n)
	for i := range rows {
		rows[i] = numbered("default", b.stream, (i+1)%97, i+1)
	}
	b.write(rows...)
}

func (b *bench) arrived() int {
	b.Helper()
	n, err := b.redis.XLen(b.Context(), b.stream).Result()
	require.NoError(b, err)
	return int(n)
}

// relay is a relay in a process of its own.
type relayProcess struct {
	t   *testing.T
	cmd *exec.Cmd
	log *relayLog
}

// relayLog is what a process writes, which may be read meanwhile.
type relayLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *relayLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *relayLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (b *bench) relay() *relayProcess {
	b.Helper()
	r := &relayProcess{t: b.T, log: new(relayLog)}
	r.cmd = exec.Command(fanoutCommand(), "relay", "--config", b.config, "--log-json") //nolint:noctx // it is stopped by a signal
	r.cmd.Stderr = r.log
	require.NoError(b, r.cmd.Start())
	b.Cleanup(func() { _ = r.cmd.Process.Kill() })
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
	b.Helper()
	entries, err := b.redis.XRange(b.Context(), b.stream, "-", "+").Result()
	require.NoError(b, err)
	require.Len(b, entries, want)
	last, seen := map[int]int{}, map[any]bool{}
	for _, entry := range entries {
		var payload struct{ Key, N int }
		data, ok := entry.Values["data"].(string)
		require.True(b, ok)
		require.NoError(b, json.Unmarshal([]byte(data), &payload))
		require.Greater(b, payload.N, last[payload.Key], "order of key %d", payload.Key)
		last[payload.Key] = payload.N
		require.False(b, seen[entry.Values["id"]], "delivered twice")
		seen[entry.Values["id"]] = true
	}
}
