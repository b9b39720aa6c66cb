package gcppubsub_test

import (
	"context"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/gcppubsub"
)

// hangs makes the server hold each request until the caller goes away. The channel tells of each
// that has come.
func (s *server) hangs() <-chan struct{} {
	came := make(chan struct{}, 100)
	s.waits(func(ctx context.Context) {
		came <- struct{}{}
		<-ctx.Done()
	})
	return came
}

// publishing publishes in a goroutine of its own.
func publishing(ctx context.Context, b brokers.Broker, msgs []brokers.Message) <-chan []brokers.Result {
	results := make(chan []brokers.Result, 1)
	go func() { results <- b.Publish(ctx, msgs) }()
	return results
}

// A server that says nothing is nobody's fault, and noticed within the timeout of a request. What
// is behind it is not sent.
func TestHangingServerTimeout(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.createTopic(t, "orders")
	const timeout = 500 * time.Millisecond
	s.waits(func(ctx context.Context) {
		deadline, _ := ctx.Deadline() // the client's, as the server knows it
		assert.LessOrEqual(t, time.Until(deadline), timeout)
		<-ctx.Done()
	})
	b := s.open(t, gcppubsub.Settings{Timeout: timeout, BatchMessages: 2})
	results := b.Publish(t.Context(), many("orders", 6, 2))
	assert.Equal(t, map[string]int{"unavailable broker": 4, "not_sent": 2}, verdicts(results), "two keys, their first requests")
	require.ErrorContains(t, results[0].Err, "no answer in time")
	require.ErrorContains(t, results[0].Err, "raise Timeout")

	s.waits(nil)
	assert.Equal(t, map[string]int{"": 6}, verdicts(b.Publish(t.Context(), many("orders", 6, 2))), "no key is stalled")
}

func TestHangingServerDeadlineOfTheCall(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.createTopic(t, "orders")
	s.hangs()
	b := s.open(t, gcppubsub.Settings{BatchMessages: 2})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	results := b.Publish(ctx, many("orders", 3, 1))
	assert.Equal(t, map[string]int{"unavailable broker": 2, "not_sent": 1}, verdicts(results))
}

// A caller who stops waiting learns at once that nothing is known.
func TestHangingServerCancelled(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.createTopic(t, "orders")
	came := s.hangs()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answer := publishing(ctx, s.open(t, gcppubsub.Settings{BatchMessages: 2}), many("orders", 3, 1))
	<-came
	cancel()
	assert.Equal(t, map[string]int{"retryable": 2, "not_sent": 1}, verdicts(<-answer))
}

// The server takes the messages and then says nothing: they come again, and nothing has overtaken
// them.
func TestNoAnswerAfterTheMessagesWereTaken(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.createTopic(t, "orders")
	b := s.open(t, gcppubsub.Settings{Timeout: 500 * time.Millisecond, BatchMessages: 2})
	taken := make(chan struct{})
	released := make(chan struct{})
	s.replies(func(*pubsubpb.PublishRequest) error {
		close(taken)
		<-released
		return nil
	})
	results := b.Publish(t.Context(), many("orders", 4, 1))
	<-taken
	assert.Equal(t, map[string]int{"unavailable broker": 2, "not_sent": 2}, verdicts(results))
	assert.Equal(t, "id-0 id-1", ids(s.received(t, "orders")))

	s.replies(nil)
	assert.Equal(t, map[string]int{"": 4}, verdicts(b.Publish(t.Context(), many("orders", 4, 1))))
	close(released)
	assert.Equal(t, "id-0 id-1 id-0 id-1 id-2 id-3", ids(s.received(t, "orders")))
}
