package gcppubsub_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/gcppubsub"
)

// always answers each publish with a status.
func always(code codes.Code) func(*pubsubpb.PublishRequest) error {
	return func(*pubsubpb.PublishRequest) error { return status.Error(code, "injected") }
}

// refusingWith refuses each request that has a message with this id, as Pub/Sub does: the whole of it.
func refusingWith(code codes.Code, id string) func(*pubsubpb.PublishRequest) error {
	return func(request *pubsubpb.PublishRequest) error {
		for _, m := range request.GetMessages() {
			if m.GetAttributes()[brokers.FieldID] == id {
				return status.Error(code, "refused")
			}
		}
		return nil
	}
}

// An outcome is what a status does: to two messages of a key, and how often one message is sent.
type outcome struct {
	first, second string
	requests      int64
}

// What the documentation of the package says about each status.
func TestStatusCodes(t *testing.T) {
	t.Parallel()
	everywhere := outcome{"unavailable broker", "unavailable broker", 1}
	there := outcome{"unavailable destination", "unavailable destination", 1}
	// Both may have arrived, so that neither is "not sent"; only the first one has been tried
	// alone.
	unknown := outcome{"retryable", "unavailable destination", 1}
	for code, want := range map[codes.Code]outcome{
		codes.NotFound:           there,
		codes.PermissionDenied:   there,
		codes.FailedPrecondition: there,
		codes.Unauthenticated:    everywhere,
		codes.ResourceExhausted:  everywhere,
		codes.Unimplemented:      everywhere,
		codes.DeadlineExceeded:   everywhere, // the server's
		codes.Unavailable:        {"unavailable broker", "unavailable broker", 3},
		codes.InvalidArgument:    {"permanent", "not_sent", 1},
		codes.OutOfRange:         {"retryable", "not_sent", 1},
		codes.AlreadyExists:      {"retryable", "not_sent", 1},
		codes.Internal:           {"retryable", "unavailable destination", 3},
		codes.Aborted:            {"retryable", "unavailable destination", 3},
		codes.Canceled:           unknown,
		codes.Unknown:            unknown,
		codes.DataLoss:           unknown,
		codes.Code(99):           unknown,
	} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.createTopic(t, "orders")
			b := s.open(t)
			s.reacts(always(code))
			results := b.Publish(t.Context(), many("orders", 2, 1))
			assert.Equal(t, want.first, verdict(results[0]))
			assert.Equal(t, want.second, verdict(results[1]))
			require.ErrorContains(t, results[0].Err, `gcppubsub: publish to "projects/acme/topics/orders": `)
			require.ErrorContains(t, results[0].Err, "injected")
			_, refused := brokers.Refusal(results[0].Err)
			assert.Equal(t, !strings.HasPrefix(want.first, "unavailable"), refused, "no answer names a message for certain")
			assert.Equal(t, code, status.Code(results[0].Err), "the status stays in the chain")

			before := s.requests.Load()
			require.Error(t, b.Publish(t.Context(), many("orders", 1, 1))[0].Err)
			assert.Equal(t, want.requests, s.requests.Load()-before, "requests for one message")

			s.reacts(nil) // and nothing stays paused
			assert.Equal(t, map[string]int{"": 2}, verdicts(b.Publish(t.Context(), many("orders", 2, 1))))
		})
	}
}

// The project's own troubles come under the codes of a topic's; the reason beside the text tells
// them apart.
func TestReasons(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.createTopic(t, "orders")
	b := s.open(t)
	for _, c := range []struct {
		code               codes.Code
		reason, want, says string
	}{
		{codes.PermissionDenied, "SERVICE_DISABLED", "unavailable broker", "enable the Pub/Sub API"},
		{codes.PermissionDenied, "BILLING_DISABLED", "unavailable broker", "enable billing"},
		{codes.FailedPrecondition, "BILLING_DISABLED", "unavailable broker", "enable billing"},
		{codes.PermissionDenied, "CONSUMER_INVALID", "unavailable broker", "check the project's id"},
		{codes.PermissionDenied, "CONSUMER_SUSPENDED", "unavailable broker", "suspended"},
		{codes.PermissionDenied, "ACCESS_TOKEN_SCOPE_INSUFFICIENT", "unavailable broker", "OAuth scope"},
		{codes.PermissionDenied, "IAM_PERMISSION_DENIED", "unavailable destination", "pubsub.topics.publish"},
		{codes.PermissionDenied, "USER_PROJECT_DENIED", "unavailable broker", "serviceusage.services.use"},
		{codes.InvalidArgument, "BILLING_DISABLED", "permanent", "limits"},
	} {
		detailed, err := status.New(c.code, "injected").WithDetails(&errdetails.ErrorInfo{Reason: c.reason, Domain: "googleapis.com"})
		require.NoError(t, err)
		s.reacts(func(*pubsubpb.PublishRequest) error { return detailed.Err() })
		result := b.Publish(t.Context(), many("orders", 1, 1))[0]
		assert.Equal(t, c.want, verdict(result), "%s %s", c.code, c.reason)
		require.ErrorContains(t, result.Err, c.says)
	}

	const text = "Requested project not found or user does not have access to it (project=acme)."
	s.reacts(func(*pubsubpb.PublishRequest) error { return status.Error(codes.NotFound, text) })
	result := b.Publish(t.Context(), many("orders", 1, 1))[0]
	assert.Equal(t, "unavailable broker", verdict(result))
	require.ErrorContains(t, result.Err, "check the project's id")
	result = b.Publish(t.Context(), many("projects/other/topics/orders", 1, 1))[0]
	assert.Equal(t, "unavailable destination", verdict(result), "somebody else's project is one destination")
}

// A hiccup is over before anybody hears of it.
func TestHiccup(t *testing.T) {
	t.Parallel()
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

// A message that the server refuses is found within its request, whatever kind of refusal it is.
func TestRefusedMessageIsFound(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.createTopic(t, "orders")
	for code, class := range map[codes.Code]string{codes.InvalidArgument: "permanent", codes.OutOfRange: "retryable"} {
		s.reacts(refusingWith(code, "id-37"))
		b := s.open(t)
		s.fake.ClearMessages()
		results := b.Publish(t.Context(), many("orders", 100, 1))
		assert.Equal(t, map[string]int{"": 37, class: 1, "not_sent": 62}, verdicts(results))
		class, _ := brokers.Classify(results[37].Err)
		assert.NotEqual(t, brokers.ClassNotSent, class)
		assert.Len(t, s.received(t, "orders"), 37)

		s.fake.ClearMessages()
		msgs := many("orders", 100, 1)
		for i := range msgs {
			msgs[i].OrderingKey = ""
		}
		assert.Equal(t, map[string]int{"": 99, string(class): 1}, verdicts(b.Publish(t.Context(), msgs)))
		assert.Len(t, s.received(t, "orders"), 99)
	}
}

// A server that takes less than Pub/Sub does (gRPC's own limit is 4 MB).
func TestServerTakesLess(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.createTopic(t, "orders")
	msgs := many("orders", 4, 1)
	msgs[1].Payload = make([]byte, 5<<20)
	// The fake's own front has gRPC's limit.
	results := s.open(t, gcppubsub.Settings{Endpoint: s.fake.Addr}).Publish(t.Context(), msgs)
	assert.Equal(t, map[string]int{"": 1, "permanent": 1, "not_sent": 2}, verdicts(results), "%v", results[1].Err)
}
