package relay

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// stuck is a store with one row in each normal shard, of which the claim with the number stickAt
// gets no answer before it is let go.
type stuck struct {
	driver.Delivery // nothing else of it is called

	stickAt int
	letGo   chan struct{}

	mu                sync.Mutex
	paused            bool
	claims, published int
	taken             [outbox.Shards]bool
}

func (*stuck) Shards() int                                   { return outbox.Shards }
func (*stuck) Pauses(context.Context) ([]admin.Pause, error) { return nil, nil }

func (s *stuck) Ready(context.Context, string, wakeup.Set) (driver.Readiness, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ready := driver.Readiness{Paused: s.paused}
	for shard, taken := range s.taken {
		if !taken && !s.paused {
			ready.Shards = append(ready.Shards, shard)
		}
	}
	return ready, nil
}

func (s *stuck) Exchange(_ context.Context, completion *driver.Completion, claim *driver.Claim) (exchanged driver.Exchanged, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if completion != nil {
		s.published += len(completion.Published)
		for _, outcome := range completion.Other {
			s.taken[outcome.ID] = false
		}
		exchanged.Completed = &driver.Completed{}
	}
	if claim == nil {
		return exchanged, nil
	}
	if s.claims++; s.claims == s.stickAt {
		s.mu.Unlock()
		<-s.letGo
		s.mu.Lock()
	}
	if claim.Shard < outbox.Shards && !s.taken[claim.Shard] {
		s.taken[claim.Shard] = true
		exchanged.Batch.Messages = []driver.Message{{
			ID: int64(claim.Shard), MessageID: uuid.NewString(), Stream: "s", Type: "t", OrderingKey: strconv.Itoa(claim.Shard), ContentType: "application/json", Payload: []byte("{}"),
		}}
	}
	return exchanged, nil
}

func (s *stuck) read() (claims, published int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claims, s.published
}

func (s *stuck) pause(paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = paused
}

// confirmer is a broker that confirms nothing before it is told to.
type confirmer struct {
	confirm chan struct{}
}

func (b *confirmer) Publish(_ context.Context, messages []brokers.Message) []brokers.Result {
	<-b.confirm
	return make([]brokers.Result, len(messages))
}

func (*confirmer) Capabilities() brokers.Capabilities { return brokers.Capabilities{Ordering: true} }
func (*confirmer) Ping(context.Context) error         { return nil }
func (*confirmer) Close(context.Context) error        { return nil }

// startStuck runs a processor with one exchange at a time, and so with two batches.
func startStuck(t *testing.T, stickAt int) (p *Processor, s *stuck, b *confirmer, stop func(), done chan error) {
	t.Helper()
	s, b = &stuck{stickAt: stickAt, letGo: make(chan struct{})}, &confirmer{confirm: make(chan struct{})}
	p, err := NewProcessor(ProcessorConfig{
		Database: "test", Broker: "b", Store: s, Target: b, Policy: outbox.Policy{Workers: 1}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done = make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	synctest.Wait()
	return p, s, b, stop, done
}

// TestNoClaimAfterTheEnd: who has waited for a turn with the database claims nothing when the
// processor was stopped or paused meanwhile.
func TestNoClaimAfterTheEnd(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"stopped", "paused"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, s, b, stop, done := startStuck(t, 1)
				close(b.confirm)
				claims, _ := s.read()
				require.Equal(t, 1, claims, "the other one waits for its turn")
				if end == "stopped" {
					stop()
				} else {
					s.pause(true)
					p.Wake(wakeup.Unknown)
				}
				synctest.Wait()
				close(s.letGo)
				synctest.Wait()
				claims, published := s.read()
				assert.Equal(t, 1, claims)
				assert.Zero(t, published)
				if end == "paused" {
					s.pause(false)
					p.Wake(wakeup.Unknown)
					time.Sleep(time.Minute)
					_, published = s.read()
					assert.Equal(t, outbox.Shards, published, "after the pause all goes out")
					stop()
				}
				require.NoError(t, <-done)
			})
		})
	}
}

// TestOutcomesAtTheEnd: a processor that stops writes the outcomes of a batch, whatever becomes of
// another one's exchange.
func TestOutcomesAtTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, s, b, stop, done := startStuck(t, 0)
		s.mu.Lock()
		s.stickAt = s.claims + 1
		s.mu.Unlock()
		_, published := s.read()
		require.Zero(t, published, "two batches are with the broker")
		b.confirm <- struct{}{} // one of them goes on, and the next claim is stuck
		synctest.Wait()
		claims, published := s.read()
		require.Equal(t, s.stickAt, claims)
		require.Equal(t, 1, published)
		stop()
		close(b.confirm)
		synctest.Wait()
		_, published = s.read()
		assert.Equal(t, 2, published)
		close(s.letGo)
		require.NoError(t, <-done)
	})
}
