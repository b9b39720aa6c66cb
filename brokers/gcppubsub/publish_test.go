package gcppubsub_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/gcppubsub"
)

func message(destination, key string, n int) brokers.Message {
	return brokers.Message{
		ID: fmt.Sprintf("id-%d", n), Destination: destination, Type: "T.v1", OrderingKey: key, ContentType: "application/json",
		Payload: fmt.Appendf(nil, "%d", n),
	}
}

func many(destination string, n, keys int) []brokers.Message {
	msgs := make([]brokers.Message, n)
	for i := range msgs {
		msgs[i] = message(destination, fmt.Sprint("key-", i%keys), i)
	}
	return msgs
}

// verdict is the class and scope of a result.
func verdict(result brokers.Result) string {
	class, scope := brokers.Classify(result.Err)
	return strings.TrimSpace(string(class) + " " + string(scope))
}

// verdicts counts results by class and scope.
func verdicts(results []brokers.Result) map[string]int {
	count := map[string]int{}
	for _, result := range results {
		count[verdict(result)]++
	}
	return count
}

// One topic is out, the others are not; what follows on a key of the topic is held, for other
// topics too.
func TestMissingTopic(t *testing.T) {
	everywhere(t, testMissingTopic)
}

func testMissingTopic(t *testing.T, s site) {
	t.Helper()
	s.createTopic(t, "there")
	msgs := []brokers.Message{
		message("missing", "a", 0), message("there", "b", 1), message("there", "a", 2), message("missing", "c", 3),
		message("there", "", 4), message("missing", "", 5), message("there", "d", 6), message("there", "b", 7),
	}
	results := s.open(t).Publish(t.Context(), msgs)
	for _, i := range []int{1, 4, 6, 7} {
		assert.NoError(t, results[i].Err, "message %d", i)
	}
	class, scope := brokers.Classify(results[0].Err)
	assert.Equal(t, brokers.ClassUnavailable, class)
	assert.Equal(t, brokers.ScopeDestination, scope)
	assert.ErrorContains(t, results[0].Err, "create the topic")
	assert.ErrorIs(t, results[2].Err, brokers.ErrNotSent)
	for _, i := range []int{3, 5} { // side by side with the first one, or after it
		class, _ := brokers.Classify(results[i].Err)
		assert.Contains(t, []brokers.Class{brokers.ClassUnavailable, brokers.ClassNotSent}, class)
	}
	require.NoError(t, s.open(t).CheckDestination(t.Context(), "there"))
	require.ErrorContains(t, s.open(t).CheckDestination(t.Context(), "missing"), "create the topic")
}

func TestCreateTopics(t *testing.T) {
	everywhere(t, testCreateTopics)
}

func testCreateTopics(t *testing.T, s site) {
	t.Helper()
	b := s.open(t, gcppubsub.Settings{CreateDestinations: true})
	require.NoError(t, b.CheckDestination(t.Context(), "ordering::order"), "it will be created")
	if fake, is := s.(*server); is { // all requests find that the topic is missing
		var came atomic.Int64
		all := make(chan struct{})
		fake.waits(func(context.Context) {
			if n := came.Add(1); n == 20 {
				close(all)
			} else if n < 20 {
				<-all
			}
		})
	}
	assert.Equal(t, map[string]int{"": 20}, verdicts(b.Publish(t.Context(), many("ordering::order", 20, 20))), "twenty requests race to create it")
	if fake, is := s.(*server); is { // with the emulator there is no subscription
		assert.Len(t, fake.received(t, "ordering::order"), 20)
	}
	assert.Equal(t, map[string]int{"": 40}, verdicts(b.Publish(t.Context(), many("ordering::order", 40, 20))))
}

func TestTopics(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "ordering.order", gcppubsub.TopicID("ordering::order"))
	assert.Equal(t, "ordering", gcppubsub.TopicID("ordering"))

	s := newServer(t)
	s.createTopic(t, "orders-of-acme")
	b := s.open(t, gcppubsub.Settings{Topic: func(destination string) string {
		switch destination {
		case "id":
			return "orders-of-acme"
		case "full":
			return fullName("orders-of-acme")
		default:
			return destination
		}
	}})
	assert.Equal(t, map[string]int{"": 2}, verdicts(b.Publish(t.Context(), []brokers.Message{message("id", "k", 1), message("full", "k", 2)})))
	assert.Equal(t, "id-1 id-2", ids(s.received(t, "orders-of-acme")))

	for _, illegal := range []string{
		"ab", "1abc", "goog-x", "with space", "ordering::order", strings.Repeat("x", 256), "naïve",
		"projects/acme/topics/ab", "projects/acme/topics/goog-x", "projects/acme/orders", "projects/ACME/topics/orders", "projects/a/b/topics/orders",
	} {
		results := b.Publish(t.Context(), []brokers.Message{message(illegal, "k", 1), message("id", "k", 2)})
		class, scope := brokers.Classify(results[0].Err)
		assert.Equal(t, brokers.ClassUnavailable, class, "the configuration can cure it")
		assert.Equal(t, brokers.ScopeDestination, scope)
		require.ErrorContains(t, results[0].Err, "is not a legal topic", illegal)
		assert.ErrorIs(t, results[1].Err, brokers.ErrNotSent)
	}
	results := b.Publish(t.Context(), []brokers.Message{message("", "", 1)})
	assert.Equal(t, map[string]int{"permanent": 1}, verdicts(results))
}

// One request per key and batch, one per batch without keys.
func TestRequests(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings gcppubsub.Settings
		msgs     []brokers.Message
		want     int64
	}{
		"a request per key":      {gcppubsub.Settings{}, many("orders", 60, 20), 20},
		"one key":                {gcppubsub.Settings{}, many("orders", 60, 1), 1},
		"one key, small batches": {gcppubsub.Settings{BatchMessages: 7}, many("orders", 60, 1), 9},
		"batches end with bytes": {gcppubsub.Settings{BatchBytes: 500}, many("orders", 60, 1), 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.createTopic(t, "orders")
			assert.Equal(t, map[string]int{"": len(c.msgs)}, verdicts(s.open(t, c.settings).Publish(t.Context(), c.msgs)))
			assert.Equal(t, c.want, s.requests.Load())
		})
	}
	t.Run("without keys", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		s.createTopic(t, "orders")
		msgs := many("orders", 2500, 1)
		for i := range msgs {
			msgs[i].OrderingKey = ""
		}
		assert.Equal(t, map[string]int{"": 2500}, verdicts(s.open(t).Publish(t.Context(), msgs)))
		assert.EqualValues(t, 3, s.requests.Load())
	})
}

func TestConcurrencyIsBounded(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.createTopic(t, "orders")
	var now, most atomic.Int64
	s.waits(func(context.Context) {
		n := now.Add(1)
		defer now.Add(-1)
		for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); {
			seen = most.Load()
		}
		<-time.After(time.Millisecond) // in which others come, if they may
	})
	b := s.open(t, gcppubsub.Settings{Concurrency: 3})
	assert.Equal(t, map[string]int{"": 200}, verdicts(b.Publish(t.Context(), many("orders", 200, 100))))
	assert.LessOrEqual(t, most.Load(), int64(3))
}

// A client of the caller's stays open.
func TestNewLeavesTheClientOpen(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.createTopic(t, "orders")
	client, err := pubsub.NewClient(t.Context(), project, slices.Concat(gcppubsub.ClientOptions(), clientOptions(),
		[]option.ClientOption{option.WithEndpoint(s.addr)})...)
	require.NoError(t, err)
	b := gcppubsub.New(client, gcppubsub.Settings{})
	assert.Equal(t, map[string]int{"": 3}, verdicts(b.Publish(t.Context(), many("orders", 3, 1))))
	require.NoError(t, b.Close(t.Context()))
	b = gcppubsub.New(client, gcppubsub.Settings{})
	assert.Equal(t, map[string]int{"": 3}, verdicts(b.Publish(t.Context(), many("orders", 3, 1))))

	require.NoError(t, client.Close())
	assert.Equal(t, map[string]int{"unavailable broker": 3}, verdicts(b.Publish(t.Context(), many("orders", 3, 1))))
}
