package redisconsumer_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/testservers"
)

// server is a redis-server process of one test's own, which may be killed and started again.
type server struct {
	bin, dir, port string
	args           []string
	sentinel       string // the path of its configuration, where it is a Sentinel
	process        *exec.Cmd
}

// startServer starts the binary in FANOUT_TEST_REDIS_BIN, with further arguments, on a free port,
// and stops it with the test. Every write is on disk before it is confirmed.
func startServer(t *testing.T, args ...string) *server {
	t.Helper()
	return startAs(t, &server{args: args})
}

func startSentinel(t *testing.T, config string) *server {
	t.Helper()
	return startAs(t, &server{sentinel: config})
}

func startAs(t *testing.T, s *server) *server {
	t.Helper()
	s.bin = os.Getenv(testservers.RedisBinVariable)
	if s.bin == "" {
		t.Skip("FANOUT_TEST_REDIS_BIN, the path of redis-server, is not set")
	}
	s.dir, s.port = t.TempDir(), testenv.FreePort(t)
	s.start(t)
	t.Cleanup(func() {
		if s.process != nil {
			s.kill(t)
		}
	})
	return s
}

func (s *server) addr() string { return net.JoinHostPort("127.0.0.1", s.port) }
func (s *server) url() string  { return "redis://" + s.addr() + "/0" }

func (s *server) start(t *testing.T) {
	t.Helper()
	args := append([]string{
		"--bind", "127.0.0.1", "--port", s.port, "--dir", s.dir, "--save", "", "--appendonly", "yes", "--appendfsync", "always", "--daemonize", "no",
	}, s.args...)
	if s.sentinel != "" {
		args = []string{s.sentinel, "--sentinel", "--bind", "127.0.0.1", "--port", s.port, "--dir", s.dir}
	}
	s.process = exec.CommandContext(context.Background(), s.bin, args...)
	require.NoError(t, s.process.Start())
	client := redis.NewClient(&redis.Options{Addr: s.addr(), DialerRetries: 1, MaxRetries: -1})
	defer client.Close()
	require.Eventually(t, func() bool {
		err := client.Ping(context.Background()).Err()
		return err == nil || redis.IsAuthError(err)
	}, 20*time.Second, 5*time.Millisecond, "redis-server answers")
}

func (s *server) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, s.process.Process.Kill())
	_ = s.process.Wait()
	s.process = nil
}
