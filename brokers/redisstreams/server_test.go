package redisstreams_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// server is a redis-server process of one test's own, which may be killed, frozen and filled up.
type server struct {
	bin, dir, port string
	args           []string
	process        *exec.Cmd
}

// startServer starts the binary in FANOUT_TEST_REDIS_BIN, with further arguments, on a free port, and stops it with the test.
// Every write is on disk before it is confirmed.
func startServer(t *testing.T, args ...string) *server {
	t.Helper()
	bin := os.Getenv("FANOUT_TEST_REDIS_BIN")
	if bin == "" {
		t.Skip("FANOUT_TEST_REDIS_BIN, the path of redis-server, is not set")
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	s := &server{bin: bin, dir: t.TempDir(), port: port, args: args}
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
	s.process = exec.CommandContext(context.Background(), s.bin, append([]string{
		"--bind", "127.0.0.1", "--port", s.port, "--dir", s.dir, "--save", "",
		"--appendonly", "yes", "--appendfsync", "always", "--daemonize", "no",
	}, s.args...)...)
	require.NoError(t, s.process.Start())
	client := s.client()
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

// freeze stops the process as a hung machine does: connections stay, nothing answers. thaw ends that.
func (s *server) freeze(t *testing.T) (thaw func()) {
	t.Helper()
	process := s.process.Process
	require.NoError(t, process.Signal(syscall.SIGSTOP))
	return func() { require.NoError(t, process.Signal(syscall.SIGCONT)) }
}

// client returns a client for looking into the server; its retries wait for a server that is starting.
func (s *server) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.addr(), DialerRetries: 1, MaxRetries: -1})
}

// do executes one command of an administrator.
func (s *server) do(t *testing.T, args ...any) {
	t.Helper()
	client := s.client()
	defer client.Close()
	require.NoError(t, client.Do(t.Context(), args...).Err(), "%v", args)
}
