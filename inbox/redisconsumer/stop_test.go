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

// stubborn is a handler that does not care for its context.
func stubborn() (handler inbox.HandlerFunc, begun, release chan struct{}) {
	begun, release = make(chan struct{}, 1), make(chan struct{})
	return func(context.Context, *inbox.Message) (inbox.Outcome, error) {
		begun <- struct{}{}
		<-release
		return inbox.Handled, nil
	}, begun, release
}

// An isolated message whose handler does not end when its context does holds up a stop no longer
// than any other message, and is another's later.
func TestIsolatedIgnoresItsContext(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *testing.T, s *site) {
		s.addAll(t, 2, 2)
		s.readDead(t, 1)
		s.claimDead(t, s.rows(t)[0].ID, 3)
		handler, begun, release := stubborn()
		var j journal
		c, err := redisconsumer.NewConsumer(s, group, []string{s.stream}, handler, quick(
			redisconsumer.WithShutdownTimeout(0), redisconsumer.WithTimeout(time.Millisecond), redisconsumer.WithLogger(j.logger()))...)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		<-begun
		soon(t, "the log says so", func() bool { return j.lines("level=WARN", "isolated message overdue") == 1 })
		cancel()
		select {
		case err := <-done:
			assert.ErrorContains(t, err, "1 handlers go on although their contexts were cancelled")
		case <-time.After(20 * time.Second):
			assert.Fail(t, "it does not stop")
		}
		rows := s.rows(t)
		if assert.NotEmpty(t, rows) {
			assert.Equal(t, int64(4), rows[0].RetryCount, "it was charged")
		}
		close(release)
	})
}

// Handlers of a run that has ended with an error would go on with what the next run has claimed.
func TestRunAgainBesideHandlersOfTheLastRun(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *testing.T, s *site) {
		s.add(t, "a", 0)
		handler, begun, release := stubborn()
		c, err := redisconsumer.NewConsumer(s, group, []string{s.stream}, handler, quick(redisconsumer.WithShutdownTimeout(0))...)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		<-begun
		cancel()
		require.Error(t, <-done)
		again, cancelAgain := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancelAgain()
		assert.ErrorContains(t, c.Run(again), "1 handlers of the last run have not come to an end")
		close(release)
		r := launchSoon(t, c)
		<-begun
		soon(t, "it goes on", func() bool { return r.stats(t).Handled == 2 && s.pending(t) == 0 })
	})
}

// launchSoon launches a consumer once it lets itself be launched.
func launchSoon(t *testing.T, c *redisconsumer.Consumer) *run {
	t.Helper()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	soon(t, "it can run again", func() bool { return c.Run(over) == nil })
	return launch(t, c)
}
