package gcppubsub_test

import (
	"fmt"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/brokertest/relaytest"
	"github.com/gorm-fanout/fanout/brokers/gcppubsub"
)

// One key of a bulk fails: the others do not notice, and the key goes on with the next call.
func TestOneKeyFails(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.createTopic(t, "orders")
	b := s.open(t, gcppubsub.Settings{BatchMessages: 5})
	for code, want := range map[codes.Code]map[string]int{
		codes.InvalidArgument: {"": 40, "permanent": 1, "not_sent": 9},
		codes.OutOfRange:      {"": 40, "retryable": 1, "not_sent": 9},
		// Of the request that was tried, nobody knows.
		codes.Internal: {"": 40, "retryable": 1, "unavailable destination": 4, "not_sent": 5},
		codes.Unknown:  {"": 40, "retryable": 1, "unavailable destination": 4, "not_sent": 5},
	} {
		s.fake.ClearMessages()
		s.reacts(func(request *pubsubpb.PublishRequest) error {
			if request.GetMessages()[0].GetOrderingKey() == "key-3" {
				return status.Error(code, "injected")
			}
			return nil
		})
		msgs := many("orders", 50, 5)
		results := b.Publish(t.Context(), msgs)
		assert.Equal(t, want, verdicts(results), "%s", code)
		assert.Len(t, s.received(t, "orders"), 40, "%s", code)

		s.reacts(nil)
		var again []brokers.Message
		for i := range msgs {
			if results[i].Err != nil {
				again = append(again, msgs[i])
			}
		}
		assert.Equal(t, map[string]int{"": 10}, verdicts(b.Publish(t.Context(), again)), "%s", code)
		assert.Equal(t, ids(again), ids(s.received(t, "orders")[40:]), "%s", code)
	}
}

// A message that makes the server fail, rather than refuse, is narrowed down to as well; where it
// is the server's own trouble, few requests are spent on the search.
func TestSearch(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.createTopic(t, "orders")
	b := s.open(t)
	msgs := many("orders", 1000, 1)
	for i := range msgs {
		msgs[i].OrderingKey = ""
	}
	s.reacts(refusingWith(codes.Internal, "id-700"))
	results := b.Publish(t.Context(), msgs)
	assert.Equal(t, map[string]int{"": 999, "retryable": 1}, verdicts(results))
	require.Error(t, results[700].Err)
	assert.LessOrEqual(t, s.requests.Load(), int64(25))
	assert.Len(t, s.received(t, "orders"), 999, "each once")

	for _, code := range []codes.Code{codes.Internal, codes.Unknown} {
		s.reacts(always(code))
		before := s.requests.Load()
		assert.Equal(t, map[string]int{"retryable": 1000}, verdicts(b.Publish(t.Context(), msgs)), "none of them was not sent: nobody knows")
		assert.LessOrEqual(t, s.requests.Load()-before, int64(5))

		keyed := many("orders", 1000, 1)
		before = s.requests.Load()
		assert.Equal(t, map[string]int{"retryable": 1, "unavailable destination": 999}, verdicts(b.Publish(t.Context(), keyed)),
			"the head alone loses an attempt")
		assert.LessOrEqual(t, s.requests.Load()-before, int64(15))
	}
}

// The first attempt at a request may have arrived, the second one is refused: nothing of it is
// reported as not sent.
func TestRefusedAfterAnAttemptOfUnknownEnd(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.createTopic(t, "orders")
	s.replies(func(*pubsubpb.PublishRequest) error { // taken, and the answer is lost; from then on the first message is refused
		s.replies(nil)
		s.reacts(func(request *pubsubpb.PublishRequest) error {
			if request.GetMessages()[0].GetAttributes()[brokers.FieldID] == "id-0" {
				return status.Error(codes.InvalidArgument, "injected")
			}
			return nil
		})
		return status.Error(codes.Unavailable, "lost")
	})
	results := s.open(t).Publish(t.Context(), many("orders", 4, 1))
	assert.Equal(t, "permanent", verdict(results[0]))
	assert.Equal(t, map[string]int{"unavailable broker": 3}, verdicts(results[1:]), "they are there")
	assert.Len(t, s.received(t, "orders"), 4)
}

// A misfortune of one request.
type misfortune struct {
	code  codes.Code
	taken bool // the fake has taken the messages all the same
}

// Whatever becomes of requests, a processor that sends the rest again gets every message through,
// in the order of its key, and the results never say too much.
func TestMisfortunes(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	number := 0
	rapid.Check(t, func(rt *rapid.T) {
		number++
		topic := fmt.Sprint("orders", number)
		s.createTopic(t, topic)
		s.fake.ClearMessages()
		b := s.open(t, gcppubsub.Settings{
			BatchMessages: rapid.IntRange(1, 8).Draw(rt, "batch"),
			Concurrency:   1, // so that a failure can be repeated
		})
		msgs := many(topic, rapid.IntRange(1, 40).Draw(rt, "messages"), rapid.IntRange(1, 4).Draw(rt, "keys"))
		ahead := rapid.SliceOfN(rapid.Custom(drawMisfortune), 0, 12).Draw(rt, "misfortunes")
		s.meets(ahead)
		for rounds := 0; len(msgs) > 0; rounds++ {
			require.Less(rt, rounds, len(ahead)+2, "every call gets on")
			msgs = s.processed(t, rt, b, topic, msgs)
		}
		last := map[string]int{}
		for _, m := range firsts(s.received(t, topic)) {
			var n int
			_, err := fmt.Sscan(string(m.Payload), &n)
			require.NoError(rt, err)
			before, found := last[m.OrderingKey]
			require.True(rt, !found || before < n, "key %s: %d came after %d", m.OrderingKey, n, before)
			last[m.OrderingKey] = n
		}
	})
}

func drawMisfortune(rt *rapid.T) misfortune {
	if rapid.Bool().Draw(rt, "refused") {
		return misfortune{code: rapid.SampledFrom([]codes.Code{
			codes.OK, codes.PermissionDenied, codes.OutOfRange, codes.ResourceExhausted, codes.NotFound,
		}).Draw(rt, "code")}
	}
	return misfortune{
		rapid.SampledFrom([]codes.Code{codes.Unknown, codes.DeadlineExceeded, codes.DataLoss}).Draw(rt, "code"),
		rapid.Bool().Draw(rt, "taken"),
	}
}

// meets hands each request the next misfortune, as long as there are any.
func (s *server) meets(ahead []misfortune) {
	var now misfortune
	s.reacts(func(*pubsubpb.PublishRequest) error {
		now = misfortune{}
		if len(ahead) > 0 {
			now, ahead = ahead[0], ahead[1:]
		}
		if now.taken {
			return nil
		}
		return status.Error(now.code, "injected")
	})
	s.replies(func(*pubsubpb.PublishRequest) error { return status.Error(now.code, "injected") })
}

// processed publishes as a processor does, checks the results against what came, and returns what
// has to be sent again.
func (s *server) processed(t *testing.T, rt *rapid.T, b brokers.Broker, topic string, msgs []brokers.Message) (rest []brokers.Message) {
	before := times(s.received(t, topic))
	results := b.Publish(rt.Context(), msgs)
	after := times(s.received(t, topic))
	require.Len(rt, results, len(msgs))
	failed := map[string]bool{}
	for i, m := range msgs {
		came := after[m.ID] - before[m.ID]
		switch class, _ := brokers.Classify(results[i].Err); class {
		case "":
			require.False(rt, failed[m.OrderingKey], "message %s was confirmed after one of its key that was not", m.ID)
			require.Positive(rt, came, "message %s was confirmed, but was not received", m.ID)
			continue
		case brokers.ClassNotSent:
			require.Zero(rt, came, "message %s was not sent, but came", m.ID)
		case brokers.ClassPermanent:
			require.Fail(rt, "no message is to blame", "%v", results[i].Err)
		case brokers.ClassRetryable, brokers.ClassUnavailable:
		}
		failed[m.OrderingKey] = true
		rest = append(rest, m)
	}
	return rest
}

func times(messages []brokers.Message) map[string]int {
	count := map[string]int{}
	for _, m := range messages {
		count[m.ID]++
	}
	return count
}

// firsts are the first deliveries.
func firsts(messages []brokers.Message) (first []brokers.Message) {
	seen := map[string]bool{}
	for _, m := range messages {
		if !seen[m.ID] {
			first = append(first, m)
		}
		seen[m.ID] = true
	}
	return first
}

// A message at which Pub/Sub fails each time is abandoned, and it alone: the messages that share its requests lose
// no attempt.
func TestProcessor(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.createTopic(t, "orders")
	relaytest.FindsPoison(t, s.open(t, gcppubsub.Settings{Topic: func(string) string { return "orders" }}), func(id string) {
		s.reacts(refusingWith(codes.Unknown, id))
	})
}
