package relay

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
)

// A stop in the middle of a batch finishes what is with the broker, releases the rest, and spends
// no attempt.
func TestProcessorStops(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		var r *rig
		broker := &fake{}
		broker.publish = func(context.Context, brokers.Message) error {
			if len(broker.delivered("")) == 50 {
				go r.stop()
				synctest.Wait()
			}
			return nil
		}
		r = newRig(t, path, broker, outbox.Policy{})
		r.fill(500, loose("m"))
		r.start()
		r.until(time.Minute, func() bool { return r.count("status = 'published'") > 0 })
		r.stop()
		assert.Equal(t, firstCallSize, r.count("status = 'published'"), "the call in progress")
		assert.Equal(t, 400, r.count("status = 'pending' AND attempts = 0 AND lock_token IS NULL"))
	})
}

// A shutdown that cuts a slow publish short costs no attempt, whatever the broker's implementation
// says about it.
func TestProcessorStopSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	for name, verdict := range map[string]func(error) error{
		"the context's error": func(err error) error { return err },
		"retryable":           brokers.Retryable,
		"unavailable":         func(err error) error { return brokers.Unavailable(brokers.ScopeBroker, err) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, path string) {
				broker := &fake{publish: func(ctx context.Context, m brokers.Message) error {
					if m.ID == "fast" {
						return nil
					}
					<-ctx.Done()
					return verdict(ctx.Err())
				}}
				r := newRig(t, path, broker, outbox.Policy{Workers: 1, Lease: 5 * time.Minute, PublishTimeout: time.Minute, ShutdownTimeout: 10 * time.Second})
				r.insert(row{key: "a", name: "fast"}, row{key: "b", name: "slow"}, row{key: "b", name: "follower"})
				r.start()
				time.Sleep(5 * time.Second)
				r.stop()
				assert.Equal(t, "published 1", r.status("fast"))
				assert.Equal(t, "pending 0", r.status("slow"))
				assert.Equal(t, "pending 0", r.status("follower"))
				assert.False(t, r.proc.Stats().Unavailable, "the broker had its time cut short")
			})
		})
	}
}

// silent is a store whose database does not answer when it is told to hang.
type silent struct {
	driver.Delivery

	hangs atomic.Bool
}

func (s *silent) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	if s.hangs.Load() {
		<-ctx.Done()
		return driver.Exchanged{}, ctx.Err()
	}
	return s.Delivery.Exchange(ctx, completion, claim)
}

func (s *silent) Ready(ctx context.Context, broker string, busy wakeup.Set) (driver.Readiness, error) {
	if s.hangs.Load() {
		<-ctx.Done()
		return driver.Readiness{}, ctx.Err()
	}
	return s.Delivery.Ready(ctx, broker, busy)
}

// A database that is silent does not keep a stopping processor for longer than it may take.
func TestProcessorStopsWhileTheDatabaseHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		store := &silent{}
		broker := &fake{publish: func(context.Context, brokers.Message) error { store.hangs.Store(true); return nil }}
		r := newRig(t, path, broker, outbox.Policy{ShutdownTimeout: 10 * time.Second}, func(c *ProcessorConfig) { store.Delivery, c.Store = c.Store, store })
		r.insert(row{name: "x"})
		r.start()
		time.Sleep(time.Minute)
		require.True(t, store.hangs.Load())
		began := time.Now()
		r.stop()
		assert.LessOrEqual(t, time.Since(began), 15*time.Second)
	})
}

// stuck is a store with one row in each normal shard, of which the claim with the number stickAt
// gets no answer before it is let go.
type stuck struct {
	stub

	stickAt int
	letGo   chan struct{}

	mu                sync.Mutex
	paused            bool
	claims, published int
	taken             [outbox.Shards]bool
}

func (*stuck) Shards() int { return outbox.Shards }

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
		m := message(int64(claim.Shard))
		m.OrderingKey = strconv.Itoa(claim.Shard)
		exchanged.Batch.Messages = []driver.Message{m}
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

// startStuck runs a processor with one exchange at a time, and so with two batches. Its broker
// confirms nothing before it is told to.
func startStuck(t *testing.T, stickAt int) (p *Processor, s *stuck, confirm chan struct{}, stop func()) {
	t.Helper()
	s, confirm = &stuck{stickAt: stickAt, letGo: make(chan struct{})}, make(chan struct{})
	broker := &fake{publish: func(context.Context, brokers.Message) error { <-confirm; return nil }}
	p, err := NewProcessor(ProcessorConfig{
		Database: "test", Broker: "b", Store: s, Target: broker, Policy: outbox.Policy{Workers: 1}, Log: newLog(t).logger(0),
	})
	require.NoError(t, err)
	stop = running(t, p.Run)
	synctest.Wait()
	return p, s, confirm, stop
}

// A worker that has waited for its turn with the database claims nothing when the processor was
// stopped or paused meanwhile.
func TestNoClaimAfterTheEnd(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"stopped", "paused"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, s, confirm, stop := startStuck(t, 1)
				close(confirm)
				claims, _ := s.read()
				require.Equal(t, 1, claims, "the other one waits for its turn")
				if end == "stopped" {
					go stop()
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
				}
			})
		})
	}
}

// A processor that stops writes the outcomes of a batch, whatever becomes of another one's exchange.
func TestOutcomesAtTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, s, confirm, stop := startStuck(t, 0)
		s.mu.Lock()
		s.stickAt = s.claims + 1
		s.mu.Unlock()
		_, published := s.read()
		require.Zero(t, published, "two batches are with the broker")
		confirm <- struct{}{} // one of them goes on, and the next claim is stuck
		synctest.Wait()
		claims, published := s.read()
		require.Equal(t, s.stickAt, claims)
		require.Equal(t, 1, published)
		go stop()
		close(confirm)
		synctest.Wait()
		_, published = s.read()
		assert.Equal(t, 2, published)
		close(s.letGo)
	})
}
