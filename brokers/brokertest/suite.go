package brokertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
)

const (
	defaultPatience = 2 * time.Minute
	// tick is how often a poll looks, where the server leaves no other way.
	tick = 2 * time.Millisecond
)

// suite is one run over one harness.
type suite struct {
	Harness

	random *rand.Rand
}

func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if given := os.Getenv("FANOUT_TEST_SEED"); given != "" {
		replayed, err := strconv.ParseInt(given, 10, 64)
		require.NoError(t, err, "FANOUT_TEST_SEED must be a number")
		seed = uint64(replayed)
	}
	t.Logf("repeat this run with FANOUT_TEST_SEED=%d", int64(seed))
	return rand.New(rand.NewPCG(seed, seed))
}

// open opens a broker and closes it at the end of the case.
func (s *suite) open(t *testing.T) brokers.Broker {
	t.Helper()
	b := s.Open(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.Patience)
		defer cancel()
		assert.NoError(t, b.Close(ctx))
	})
	return b
}

// message is an ordinary message: n tells it apart for people, the id for programs.
func message(destination, key string, n int) brokers.Message {
	return brokers.Message{
		ID:          uuid.NewString(),
		Destination: destination,
		Type:        "Brokertest.Happened.v1",
		OrderingKey: key,
		ContentType: "application/json",
		Payload:     fmt.Appendf(nil, `{"key":%q,"n":%d}`, key, n),
	}
}

// messages makes n messages; the key of each is one of keys by turns.
func messages(destination string, n int, keys ...string) []brokers.Message {
	msgs := make([]brokers.Message, n)
	for i := range msgs {
		msgs[i] = message(destination, keys[i%len(keys)], i)
	}
	return msgs
}

// keys makes n names of keys.
func keys(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("brokertest::case-%d", i)
	}
	return names
}

// publish publishes with patience and insists on one result per message.
func (s *suite) publish(t *testing.T, b brokers.Broker, msgs []brokers.Message) []brokers.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), s.Patience)
	defer cancel()
	results := b.Publish(ctx, msgs)
	require.Len(t, results, len(msgs), "one result per message, at the same index")
	return results
}

// succeed publishes and insists on success.
func (s *suite) succeed(t *testing.T, b brokers.Broker, msgs []brokers.Message) []brokers.Result {
	t.Helper()
	results := s.publish(t, b, msgs)
	for i, result := range results {
		require.NoError(t, result.Err, "message %d of %d", i, len(msgs))
	}
	return results
}

// eventually polls, at once and then every tick, until holds is true. It does so on the test's own
// goroutine, so that holds may use t.
func (s *suite) eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for deadline := time.Now().Add(s.Patience); !holds(); <-ticker.C {
		if time.Now().After(deadline) {
			require.Fail(t, "did not happen within "+s.Patience.String(), what)
		}
	}
}

// arrived waits until a destination holds at least n messages and returns all of them.
func (s *suite) arrived(t *testing.T, destination string, n int) []brokers.Message {
	t.Helper()
	var received []brokers.Message
	s.eventually(t, fmt.Sprintf("%d messages on %q", n, destination), func() bool {
		received = s.Received(t, destination)
		return len(received) >= n
	})
	return received
}

// seen returns how often each id arrived on the destinations of msgs.
func (s *suite) seen(t *testing.T, msgs []brokers.Message) map[string]int {
	t.Helper()
	asked, times := map[string]bool{}, map[string]int{}
	for _, m := range msgs {
		if asked[m.Destination] {
			continue
		}
		asked[m.Destination] = true
		for _, r := range s.Received(t, m.Destination) {
			times[r.ID]++
		}
	}
	return times
}

// honest checks the results of messages, each published once, against what consumers see: success
// means visible, refused or not sent means invisible, and no message of a key is visible unless all
// before it are. Messages are distinguished by their id.
func (s *suite) honest(t *testing.T, msgs []brokers.Message, results []brokers.Result) {
	t.Helper()
	for destination, n := range confirmed(msgs, results) {
		s.arrived(t, destination, n)
	}
	times, gap := s.seen(t, msgs), map[string]int{}
	for i, m := range msgs {
		class, _ := brokers.Classify(results[i].Err)
		switch class {
		case "":
			require.Positive(t, times[m.ID], "message %d was confirmed, but was not received", i)
		case brokers.ClassNotSent, brokers.ClassPermanent:
			require.Zero(t, times[m.ID], "message %d is %s, but consumers got it: %v", i, class, results[i].Err)
		case brokers.ClassRetryable, brokers.ClassUnavailable: // it may have arrived or not
		}
		if m.OrderingKey == "" {
			continue
		}
		if at, blocked := gap[m.OrderingKey]; blocked {
			require.Zero(t, times[m.ID], "message %d of key %q is visible, and message %d before it is not: %v",
				i, m.OrderingKey, at, results[at].Err)
		} else if times[m.ID] == 0 {
			gap[m.OrderingKey] = i
		}
	}
}

// confirmed counts the successes per destination.
func confirmed(msgs []brokers.Message, results []brokers.Result) map[string]int {
	count := map[string]int{}
	for i, m := range msgs {
		if results[i].Err == nil {
			count[m.Destination]++
		}
	}
	return count
}

// inOrder checks that the first deliveries of each key came in the order of msgs, and that nothing
// is missing.
func inOrder(t *testing.T, msgs, received []brokers.Message) {
	t.Helper()
	place := make(map[string]int, len(msgs))
	for i, m := range msgs {
		place[m.ID] = i
	}
	last, first := map[string]int{}, map[string]bool{}
	for _, r := range received {
		i, known := place[r.ID]
		if !known || first[r.ID] {
			continue // of another case, or delivered again
		}
		first[r.ID] = true
		key := msgs[i].OrderingKey
		if before, found := last[key]; found && key != "" {
			require.Less(t, before, i, "key %q: message %d came before message %d", key, before, i)
		}
		last[key] = i
	}
	require.Len(t, first, len(msgs), "every message arrives")
}

// equal compares what was published with what came, as far as it travels.
func equal(t *testing.T, want, got brokers.Message) {
	t.Helper()
	if got.OrderingKey == "" {
		want.OrderingKey = ""
	}
	if got.Priority == 0 {
		want.Priority = 0
	}
	if len(want.Payload) == 0 && len(got.Payload) == 0 {
		want.Payload, got.Payload = nil, nil
	}
	for _, m := range []*brokers.Message{&want, &got} {
		if m.ContentType == "" {
			m.ContentType = brokers.DefaultContentType
		}
	}
	want.Attributes, got.Attributes = sorted(want.Attributes), sorted(got.Attributes)
	require.Equal(t, want, got)
}

func sorted(attributes []brokers.Attribute) []brokers.Attribute {
	if len(attributes) == 0 {
		return nil
	}
	return slices.SortedFunc(slices.Values(attributes), func(a, b brokers.Attribute) int {
		return strings.Compare(a.Name, b.Name)
	})
}

// own is true for a failure that is the message's own, or that of the place to which the harness has sent
// it alone.
func (s *suite) own(err error) bool {
	class, scope := brokers.Classify(err)
	return class == brokers.ClassPermanent || class == brokers.ClassRetryable ||
		s.RefusesElsewhere && class == brokers.ClassUnavailable && scope == brokers.ScopeDestination
}

// refuse has the server refuse a message until the end of the case, or skips the case.
func (s *suite) refuse(t *testing.T, id string) (restore func()) {
	t.Helper()
	if s.Refuse == nil {
		t.Skip("NOT TESTED: Refuse of the harness is nil")
	}
	restore = s.Refuse(t, id)
	t.Cleanup(restore)
	return restore
}
