package gcppubsub_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/gcppubsub"
)

func always(code codes.Code) func(*pubsubpb.PublishRequest) error {
	return func(*pubsubpb.PublishRequest) error { return status.Error(code, "injected") }
}

func TestStatusCodes(t *testing.T) {
	s := newServer(t)
	s.createTopic(t, "orders")
	for code, want := range map[codes.Code]string{
		codes.NotFound:           "unavailable destination",
		codes.PermissionDenied:   "unavailable destination",
		codes.FailedPrecondition: "unavailable destination",
		codes.Unauthenticated:    "unavailable broker",
		codes.Unavailable:        "unavailable broker",
		codes.ResourceExhausted:  "unavailable broker",
		codes.Unimplemented:      "unavailable broker",
		codes.InvalidArgument:    "permanent",
		codes.DeadlineExceeded:   "retryable", // the server's, not ours
		codes.Canceled:           "retryable",
		codes.Internal:           "retryable",
		codes.Unknown:            "retryable",
		codes.Aborted:            "retryable",
		codes.OutOfRange:         "retryable",
	} {
		t.Run(code.String(), func(t *testing.T) {
			b := s.open(t)
			s.reacts(always(code))
			results := b.Publish(t.Context(), many("orders", 2, 1))
			class, scope := brokers.Classify(results[0].Err)
			assert.Equal(t, want, strings.TrimSpace(string(class)+" "+string(scope)))
			require.Error(t, results[1].Err, "a request fails as a whole, or the second message is not sent")
			require.ErrorContains(t, results[0].Err, `gcppubsub: publish to "projects/acme/topics/orders": `)
			require.ErrorContains(t, results[0].Err, "injected")
			assert.Equal(t, code, status.Code(results[0].Err), "the status stays in the chain")
			t.Log(results[0].Err)

			s.reacts(nil) // and nothing stays paused
			assert.Equal(t, map[string]int{"": 2}, verdicts(b.Publish(t.Context(), many("orders", 2, 1))))
		})
	}
}

func TestHiccup(t *testing.T) {
	s := newServer(t)
	s.createTopic(t, "orders")
	for _, code := range []codes.Code{codes.Unavailable, codes.Aborted, codes.Internal} {
		var calls atomic.Int64
		s.reacts(func(*pubsubpb.PublishRequest) error {
			if calls.Add(1) == 1 {
				return status.Error(code, "hiccup")
			}
			return nil
		})
		assert.Equal(t, map[string]int{"": 3}, verdicts(s.open(t).Publish(t.Context(), many("orders", 3, 1))))
		assert.EqualValues(t, 2, calls.Load())
	}
}

func TestNoAnswer(t *testing.T) {
	s := newServer(t)
	s.createTopic(t, "orders")
	b := s.open(t, gcppubsub.WithTimeout(200*time.Millisecond))
	s.waits(func(ctx context.Context) { <-ctx.Done() })
	began := time.Now()
	results := b.Publish(t.Context(), append(many("orders", 3, 1), many("orders", 3, 1)...))
	assert.Equal(t, map[string]int{"unavailable broker": 6}, verdicts(results), "%v", results[0].Err)
	require.ErrorContains(t, results[0].Err, "no answer in time")
	assert.Less(t, time.Since(began), 3*time.Second)

	// The same for the deadline of the call; whereas a caller who stops waiting learns that nothing is known.
	b = s.open(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	assert.Equal(t, map[string]int{"unavailable broker": 3}, verdicts(b.Publish(ctx, many("orders", 3, 1))))

	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	s.waits(func(ctx context.Context) {
		cancel()
		<-ctx.Done()
	})
	b = s.open(t, gcppubsub.WithBatch(2, 0))
	assert.Equal(t, map[string]int{"retryable": 2, "not_sent": 1}, verdicts(b.Publish(ctx, many("orders", 3, 1))))
}

func TestRefusedMessageIsFound(t *testing.T) {
	s := newServer(t)
	s.createTopic(t, "orders")
	for code, class := range map[codes.Code]string{codes.InvalidArgument: "permanent", codes.OutOfRange: "retryable"} {
		s.reacts(func(request *pubsubpb.PublishRequest) error {
			for _, m := range request.GetMessages() {
				if m.GetAttributes()["id"] == "id-37" {
					return status.Error(code, "refused")
				}
			}
			return nil
		})
		b := s.open(t)
		s.fake.ClearMessages()
		results := b.Publish(t.Context(), many("orders", 100, 1))
		assert.Equal(t, map[string]int{"": 37, class: 1, "not_sent": 62}, verdicts(results))
		class, _ := brokers.Classify(results[37].Err)
		assert.NotEqual(t, brokers.ClassNotSent, class)
		assert.Len(t, s.received("orders"), 37)

		s.fake.ClearMessages()
		msgs := many("orders", 100, 1)
		for i := range msgs {
			msgs[i].OrderingKey = ""
		}
		assert.Equal(t, map[string]int{"": 99, string(class): 1}, verdicts(b.Publish(t.Context(), msgs)))
		assert.Len(t, s.received("orders"), 99)
	}
}

func TestServerTakesLess(t *testing.T) {
	s := newServer(t)
	s.createTopic(t, "orders")
	msgs := many("orders", 4, 1)
	msgs[1].Payload = make([]byte, 5<<20)
	s.addr = s.fake.Addr // its own front, with gRPC's limit
	results := s.open(t).Publish(t.Context(), msgs)
	assert.Equal(t, map[string]int{"": 1, "permanent": 1, "not_sent": 2}, verdicts(results), "%v", results[1].Err)
}

func TestReconnect(t *testing.T) {
	s := newServer(t)
	s.createTopic(t, "orders")
	b := s.open(t)
	require.Equal(t, map[string]int{"": 20}, verdicts(b.Publish(t.Context(), many("orders", 20, 5))))
	s.stop()
	for range 5 {
		began := time.Now()
		count := verdicts(b.Publish(t.Context(), many("orders", 20, 5)))
		require.Equal(t, 20, count["unavailable broker"]+count["not_sent"], "%v", count)
		require.Positive(t, count["unavailable broker"])
		require.Less(t, time.Since(began), 3*time.Second, "noticed at once, not at a deadline")
	}
	s.start(t)
	require.Eventually(t, func() bool { // each of the client's connections finds back by itself
		return verdicts(b.Publish(t.Context(), many("orders", 20, 5)))[""] == 20
	}, 3*time.Second, 10*time.Millisecond)
	require.NoError(t, b.Ping(t.Context()))
}
