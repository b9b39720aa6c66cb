package relay

import (
	"context"
	"io"
	"log/slog"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/signature"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

// What the bookkeeping of a processor costs for each message that is delivered, from the claim to
// the completion, with a store and a broker that cost nothing: one allocation, for the attributes
// that its headers become. Signatures cost those who have keys, and no one else.
func TestAllocationsOfAProcessor(t *testing.T) { // not parallel, as other tests would be counted too
	testenv.NeedExactAllocations(t)
	for name, c := range map[string]struct {
		headers  string
		observer Observer
		sign     *signature.Keys
		want     float64
	}{
		"with headers":     {traced, nil, nil, 1},
		"without headers":  {"", nil, nil, 0},
		"with an observer": {"", Observers(countsAges{}, countsAges{}), nil, 0},
		"signed":           {"", nil, signingKeys(t), 4}, // the attributes, the value, the text and the signature
	} {
		t.Run(name, func(t *testing.T) {
			measure := func(n int) (allocations float64) {
				synctest.Test(t, func(t *testing.T) { allocations = allocationsOfBatch(t, n, c.headers, c.observer, c.sign) })
				return allocations
			}
			few, many := measure(11), measure(40) // one call of the broker, each
			t.Logf("a batch of 11: %v allocations, of 40: %v", few, many)
			require.InDelta(t, c.want, (many-few)/29, 0.1, "each message's; a batch may cost one more or less")
		})
	}
}

// allocationsOfBatch is what one batch costs, whole processor included, when it is warm.
func allocationsOfBatch(t *testing.T, n int, headers string, observer Observer, sign *signature.Keys) float64 {
	s := &sameBatch{next: make(chan struct{}), completed: make(chan struct{})}
	s.batch.Messages = make([]driver.Message, n)
	for i := range s.batch.Messages {
		s.batch.Messages[i] = driver.Message{
			ID: int64(i + 1), MessageID: uuid.NewString(), Stream: "s", Type: "T.v1", OrderingKey: "key-" + strconv.Itoa(i%50),
			ContentType: "application/json", Payload: make([]byte, 500), Headers: headers,
		}
	}
	p, err := NewProcessor(ProcessorConfig{
		Database: "test", Broker: "b", Store: s, Target: taker{}, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), //nolint:sloglint // one that is enabled: only DEBUG is not

		Policy: outbox.Policy{Workers: 1, PollMin: time.Hour, PollMax: time.Hour}, Observer: observer, Sign: sign,
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	least := testenv.Allocations(8, func() {
		s.next <- struct{}{}
		<-s.completed
	})
	stop()
	close(s.next)
	require.NoError(t, <-ended)
	return least
}

// sameBatch is a store that hands out the same batch for each word on next, and says when it was
// completed.
type sameBatch struct {
	stub
	batch           driver.Batch
	next, completed chan struct{}
}

func (s *sameBatch) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	e, err := s.stub.Exchange(ctx, completion, claim)
	if completion != nil && len(completion.Published) == len(s.batch.Messages) {
		s.completed <- struct{}{}
	}
	if claim == nil {
		return e, err
	}
	if _, more := <-s.next; more {
		e.Batch = s.batch
	}
	return e, err
}

const traced = `{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}`

// countsAges is an observer that looks at each message and keeps nothing.
type countsAges struct{}

func (o countsAges) Observe(string, string) ProcessorObserver              { return o }
func (countsAges) Claimed(context.Context, int, time.Duration)             {}
func (countsAges) Publishing(ctx context.Context, _ *Call) context.Context { return ctx }
func (countsAges) Completing(context.Context, *driver.Completion)          {}
func (countsAges) LeaseLost(context.Context, int)                          {}
func (countsAges) Published(_ context.Context, call *Call) {
	for i := range call.Messages {
		if call.Age(i) < 0 {
			panic("a message is younger than new")
		}
	}
}
