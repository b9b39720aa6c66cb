package redisstreams_test

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/testservers"
)

// server is a redis-server process of one test's own, which may be killed, frozen and filled up.
type server struct {
	bin, dir, port string
	arguments      func(*server) []string
	process        *exec.Cmd
	tls            *tls.Config // of clients, nil = none
	password       string
}

// startServer starts the binary in FANOUT_TEST_REDIS_BIN, with further arguments, on a free port,
// and stops it with the test. Every write is on disk before it is confirmed.
func startServer(t *testing.T, args ...string) *server {
	t.Helper()
	return startAs(t, &server{dir: t.TempDir(), arguments: func(s *server) []string {
		return append([]string{
			"--bind", "127.0.0.1", "--port", s.port, "--dir", s.dir, "--save", "",
			"--appendonly", "yes", "--appendfsync", "always", "--daemonize", "no", "--repl-diskless-sync-delay", "0",
		}, args...)
	}})
}

func startAs(t *testing.T, s *server) *server {
	t.Helper()
	s.bin = os.Getenv(testservers.RedisBinVariable)
	if s.bin == "" {
		t.Skip("FANOUT_TEST_REDIS_BIN, the path of redis-server, is not set")
	}
	s.port = testenv.FreePort(t)
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
	s.process = exec.CommandContext(context.Background(), s.bin, s.arguments(s)...)
	require.NoError(t, s.process.Start())
	client := s.client()
	defer client.Close()
	require.Eventually(t, func() bool {
		err := client.Ping(context.Background()).Err()
		return err == nil || redis.IsAuthError(err) || redis.HasErrorPrefix(err, "LOADING")
	}, 20*time.Second, 5*time.Millisecond, "redis-server answers")
}

func (s *server) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, s.process.Process.Kill())
	_ = s.process.Wait()
	s.process = nil
}

// freeze stops the process as a hung machine does: connections stay, nothing answers. thaw ends
// that.
func (s *server) freeze(t *testing.T) (thaw func()) {
	t.Helper()
	process := s.process.Process
	require.NoError(t, process.Signal(syscall.SIGSTOP))
	return func() { require.NoError(t, process.Signal(syscall.SIGCONT)) }
}

// client returns a client of an administrator.
func (s *server) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.addr(), TLSConfig: s.tls, Password: s.password, DialerRetries: 1, MaxRetries: -1})
}

// do executes one command of an administrator.
func (s *server) do(t *testing.T, args ...any) {
	t.Helper()
	_ = s.execute(t, args...)
}

// ask executes one command of an administrator and returns the answer as text.
func (s *server) ask(t *testing.T, args ...any) string {
	t.Helper()
	text, err := s.execute(t, args...).Text()
	require.NoError(t, err, "%v", args)
	return text
}

// execute waits for a server that still loads its data.
func (s *server) execute(t *testing.T, args ...any) (answer *redis.Cmd) {
	t.Helper()
	client := s.client()
	defer client.Close()
	soon(t, "redis-server has loaded its data", func() bool {
		answer = client.Do(t.Context(), args...)
		return !redis.HasErrorPrefix(answer.Err(), "LOADING")
	})
	require.NoError(t, answer.Err(), "%v", args)
	return answer
}

// length is the length of a stream.
func (s *server) length(t *testing.T, stream string) int {
	t.Helper()
	n, err := s.execute(t, "XLEN", stream).Int()
	require.NoError(t, err)
	return n
}

// soon polls until holds is true.
func soon(t *testing.T, what string, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, time.Minute, 5*time.Millisecond, what)
}
