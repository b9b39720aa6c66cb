package redisconsumer_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/redisconsumer"
)

// Handlers that do not end when their context does are named in the log, others take their place,
// up to as many again, their keys wait, and a stop does not wait for them for ever.
func TestHandlersIgnoreTheirContexts(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *testing.T, s *site) {
		const workers = 3
		for n := range workers {
			s.add(t, string(rune('a'+n)), n) // each of which holds a worker
		}
		s.add(t, "a", 10)
		release := make(chan struct{})
		l := newLedger()
		var j journal
		c, err := redisconsumer.NewConsumer(s, group, []string{s.stream}, l.handler(func(_ context.Context, _ *inbox.Message, n int) error {
			if n < 10 {
				<-release
			}
			return nil
		}), quick(redisconsumer.WithWorkers(workers), redisconsumer.WithTimeout(20*time.Millisecond), redisconsumer.WithShutdownTimeout(0),
			redisconsumer.WithLogger(j.logger()))...)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		soon(t, "the log names each", func() bool {
			return j.lines("level=WARN", "handler overdue", "message_id=", "type=Ordering.OrderPlaced.v1", "after=") >= workers
		})
		for n := range 10 {
			s.add(t, "d", 20+n)
		}
		soon(t, "others are handled", func() bool { return l.len() == 10 })
		for n := range workers { // now those that took their place do the same
			s.add(t, string(rune('e'+n)), 3+n)
		}
		soon(t, "the log says that nobody is left", func() bool { return j.lines("level=ERROR", "all workers blocked", "handlers=6") == 1 })
		l.mu.Lock()
		assert.Zero(t, l.times[10], "the key of a handler that goes on waits for it")
		l.mu.Unlock()
		cancel()
		select {
		case err := <-done:
			assert.NoError(t, err)
			assert.Equal(t, 1, j.lines("level=ERROR", "overdue handlers left behind"))
		case <-time.After(20 * time.Second):
			assert.Fail(t, "it does not stop")
		}
		close(release)
		soon(t, "they have returned", func() bool { return l.len() == 16 })
	})
}
