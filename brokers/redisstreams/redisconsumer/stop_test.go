package redisconsumer_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/redisstreams/redisconsumer"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/internal/testenv"
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
	testenv.NeedSeconds(t)
	s := newSite(t)
	s.addAll(t, 2, 2)
	s.readDead(t, 1)
	s.claimDead(t, s.rows(t)[0].ID, 3)
	handler, begun, release := stubborn()
	var j journal
	c, err := redisconsumer.NewConsumer(s, group, []string{s.stream}, handler, quick(redisconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{
		Timeout: time.Millisecond, ShutdownTimeout: -1, Log: j.logger(),
	}}))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	<-begun
	soon(t, "the log says so", func() bool { return j.lines("level=WARN", "handler overdue") == 1 })
	cancel()
	select {
	case err := <-done:
		assert.NoError(t, err)
	case <-time.After(20 * time.Second):
		assert.Fail(t, "it does not stop")
	}
	rows := s.rows(t)
	if assert.NotEmpty(t, rows) {
		assert.Equal(t, int64(4), rows[0].RetryCount, "it was charged")
	}
	close(release)
}
