package relay

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// accepting is a broker that takes everything.
type accepting struct{ brokers.Broker }

func (accepting) Publish(_ context.Context, messages []brokers.Message) []brokers.Result {
	return make([]brokers.Result, len(messages))
}

// deliverBatch lets a worker deliver rows of one key: "ok", "expired" or "malformed".
func deliverBatch(t *testing.T, policy outbox.Policy, kinds ...string) *driver.Completion {
	t.Helper()
	batch := driver.Batch{Lease: driver.Lease{Token: uuid.New()}}
	for i, kind := range kinds {
		m := driver.Message{ID: int64(i + 1), Stream: "s", Type: "T", OrderingKey: "key", ContentType: "application/json"}
		switch kind {
		case "malformed":
			m.Type = ""
		case "expired":
			m.ExpiresIn = -1
		}
		batch.Messages = append(batch.Messages, m)
	}
	policy = policy.WithDefaults()
	w := &worker{p: &Processor{
		target: accepting{}, policy: policy, breaker: newBreaker(policy.Breaker), sizing: &sizing{},
		log: slog.New(slog.NewTextHandler(t.Output(), nil)), failures: failures{log: slog.New(slog.NewTextHandler(t.Output(), nil))},
	}}
	s := w.deliver(t.Context(), t.Context(), &batch, time.Now())
	assert.True(t, w.p.breaker.closed(), "the broker was not even asked")
	return s
}

func abandonedIDs(s *driver.Completion) (ids []int64) {
	for _, o := range s.Other {
		if o.Status == outbox.StatusAbandoned {
			ids = append(ids, o.ID)
		}
	}
	return ids
}

// A key is blocked behind its first abandoned row: what comes after that keeps its turn.
func TestDeliverAbandonsOneRowOfAKeyThatBlocks(t *testing.T) {
	t.Parallel()
	s := deliverBatch(t, outbox.Policy{BlockAbandoned: true}, "malformed", "malformed", "ok")
	require.Len(t, s.Other, 3)
	assert.Equal(t, []int64{1}, abandonedIDs(s))
	assert.Empty(t, s.Published)

	s = deliverBatch(t, outbox.Policy{}, "malformed", "malformed", "ok")
	require.Len(t, s.Other, 3)
	assert.Equal(t, []int64{1, 2}, abandonedIDs(s), "a key that goes on loses them at once")
}

// What has expired defers nothing, before and behind what does.
func TestDeliverAbandonsAllRowsThatHaveExpired(t *testing.T) {
	t.Parallel()
	s := deliverBatch(t, outbox.Policy{BlockAbandoned: true}, "expired", "expired", "ok")
	assert.Equal(t, []int64{1, 2}, abandonedIDs(s))
	for i := range s.Other {
		assert.False(t, s.Blocks(&s.Other[i]))
	}
	s = deliverBatch(t, outbox.Policy{BlockAbandoned: true}, "malformed", "expired", "malformed")
	assert.Equal(t, []int64{1, 2}, abandonedIDs(s))
	assert.True(t, s.Blocks(&s.Other[0]))
	assert.False(t, s.Blocks(&s.Other[1]))
}

// sized is a broker that takes everything and notes how many messages each call has.
type sized struct {
	brokers.Broker

	calls []int
}

func (b *sized) Publish(_ context.Context, messages []brokers.Message) []brokers.Result {
	b.calls = append(b.calls, len(messages))
	return make([]brokers.Result, len(messages))
}

// A message that has met an outage is alone in its call: whether it causes one is to be seen by
// itself.
func TestDeliverSendsAMessageThatMetAnOutageAlone(t *testing.T) {
	t.Parallel()
	policy, broker := outbox.Policy{}.WithDefaults(), &sized{}
	w := &worker{p: &Processor{
		target: broker, policy: policy, breaker: newBreaker(policy.Breaker), sizing: &sizing{}, log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}}
	batch := driver.Batch{Lease: driver.Lease{Token: uuid.New()}, Messages: make([]driver.Message, 6)}
	for i := range batch.Messages {
		batch.Messages[i] = driver.Message{ID: int64(i), Stream: "s", Type: "T", ContentType: "application/json"}
	}
	w.p.history.note(3, time.Now())
	w.p.history.suspects.Store(1)
	w.deliver(t.Context(), t.Context(), &batch, time.Now())
	assert.Equal(t, []int{5, 1}, broker.calls, "behind the others")
	broker.calls = nil
	w.deliver(t.Context(), t.Context(), &batch, time.Now())
	assert.Equal(t, []int{6}, broker.calls, "it was delivered")
}
