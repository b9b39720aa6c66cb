package consumertest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/inbox"
)

type suite struct{ Harness }

// quick is how retries go in tests.
var quick = inbox.Retry{BaseDelay: time.Millisecond, MaxDelay: 5 * time.Millisecond, MaxAttempts: 3}

// usual are the settings of most cases.
func usual() *Settings {
	return &Settings{ConsumerConfig: inbox.ConsumerConfig{
		Workers: 4, Retry: quick, Timeout: 30 * time.Second, ShutdownTimeout: 20 * time.Second, Log: slog.New(slog.DiscardHandler),
	}}
}

// process is a consumer that runs.
type process struct {
	Consumer

	stop func() error
}

// start runs a consumer; it ends with the test.
func (s *suite) start(t *testing.T, source *Source, handler inbox.Handler, settings *Settings) *process {
	t.Helper()
	c := source.Consumer(t, handler, settings)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	stop := sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(s.Patience):
			return context.DeadlineExceeded
		}
	})
	t.Cleanup(func() { require.NoError(t, stop()) })
	return &process{Consumer: c, stop: stop}
}

// eventually waits for a condition.
func (s *suite) eventually(t *testing.T, condition func() bool, what string, args ...any) {
	t.Helper()
	require.Eventually(t, condition, s.Patience, 5*time.Millisecond, append([]any{what}, args...)...)
}

// confirmed waits until the broker has nothing left.
func (s *suite) confirmed(t *testing.T, source *Source) {
	t.Helper()
	s.eventually(t, func() bool { return source.Unconfirmed(t) == 0 }, "all are confirmed")
}

// inOrder checks the order of keys after messages were given back, or connections ended.
func (s *suite) inOrder(t *testing.T, l *ledger) {
	t.Helper()
	if !s.Shuffles {
		l.inOrder(t)
	}
}

// same does so for all that was handled.
func (s *suite) same(t *testing.T, want, got []seen) {
	t.Helper()
	if s.Shuffles {
		assert.ElementsMatch(t, want, got)
	} else {
		assert.Equal(t, want, got)
	}
}

func (s *Source) expire(t *testing.T) {
	t.Helper()
	if s.Expire != nil {
		s.Expire(t)
	}
}

// play is the life of a process that is to be killed: it tells of each message, and never ends
// message 2 of a key.
func play(open func(inbox.Handler) (Consumer, error)) {
	c, err := open(inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
		it, err := read(m)
		if err != nil {
			return "", err
		}
		fmt.Println("begin", it.key, it.n)
		if it.n == 2 {
			select {} // it is killed
		}
		return inbox.Handled, nil
	}))
	if err == nil {
		err = c.Run(context.Background())
	}
	panic(err) // it does not end by itself
}

// child starts such a process.
func (s *suite) child(t *testing.T, source *Source) (said *journal, kill func()) {
	t.Helper()
	if source.Child == "" {
		t.Skip("NOT TESTED: Child of the source is empty")
	}
	said = &journal{}
	cmd := exec.Command(os.Args[0]) //nolint:noctx // it is killed
	cmd.Env = append(os.Environ(), childVariable+"="+source.Child)
	cmd.Stdout, cmd.Stderr = said, os.Stderr
	require.NoError(t, cmd.Start())
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(kill)
	return said, kill
}
