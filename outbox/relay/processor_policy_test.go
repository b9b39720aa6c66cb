package relay_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

var errRefused = errors.New("connection refused")

// A broker that is out for a day costs nobody an attempt, and the backlog drains when it is back.
func TestProcessorOutlivesADaysOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		var (
			down  atomic.Bool
			calls atomic.Int64
		)
		down.Store(true)
		broker := &fake{publish: func(context.Context, brokers.Message) error {
			if calls.Add(1); down.Load() {
				return brokers.Unreachable(brokers.ScopeBroker, errRefused)
			}
			return nil
		}}
		r := start(t, path, broker, outbox.Policy{PollMin: time.Minute, PollMax: 10 * time.Minute, Breaker: outbox.Breaker{MaxDelay: 10 * time.Minute}})
		for i := range 600 {
			r.insert(fmt.Sprintf("k%d", i%50), strconv.Itoa(i))
		}
		for range 24 {
			time.Sleep(time.Hour)
			r.insert("", "later")
		}
		assert.Equal(t, "624", r.query("SELECT count(*) FROM outbox_messages WHERE finished_at IS NULL AND attempts = 0 AND crashes = 0"))
		assert.Equal(t, relay.BreakerOpen, r.proc.Stats().Breaker)
		assert.Less(t, calls.Load(), int64(24*60*10/6), "it is tried now and then, with few messages")
		down.Store(false)
		r.until(time.Hour, func() bool { return r.open() == "0" })
		r.stop()
		assert.Equal(t, "624", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'published' AND attempts = 1"))
		assert.Equal(t, relay.BreakerClosed, r.proc.Stats().Breaker)
	})
}

// A message that the broker never answers, while others pass, is charged with its attempts in the
// end; the breaker stays closed, and what stands beside it in a call is neither charged nor lost.
func TestProcessorChargesAMessageThatTimesOut(t *testing.T) {
	t.Parallel()
	for _, bulk := range []bool{false, true} {
		t.Run(fmt.Sprintf("bulk=%t", bulk), func(t *testing.T) {
			inBubble(t, func(t *testing.T, path string) {
				broker := &mute{bulk: bulk}
				policy := outbox.Policy{
					PublishTimeout: 5 * time.Second, PollMin: time.Second, Retry: outbox.Retry{BaseDelay: time.Second, MaxDelay: time.Minute},
				}
				r := newRig(t, path, broker, policy)
				t.Cleanup(func() { _ = r.db.Close() })
				for i := range 77 {
					r.insert("", strconv.Itoa(i))
				}
				r.insert("k", "poison")
				r.insert("k", "follower")
				r.start()
				opened := false
				for i := range 150 { // traffic goes on
					r.insert("", strconv.Itoa(100+i))
					time.Sleep(5 * time.Second)
					opened = opened || r.proc.Stats().Breaker != relay.BreakerClosed
				}
				assert.Equal(t, "abandoned 5", r.status("poison"))
				r.until(5*time.Minute, func() bool { return r.open() == "0" })
				r.stop()
				assert.Equal(t, "228", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'published' AND attempts = 1"))
				if !bulk { // a call with one answer for all can look like an outage
					assert.False(t, opened, "one message among others does not open the breaker")
				}
			})
		})
	}
}

// mute is a broker that gives no answer to one message; where it has one answer for a whole call,
// to the call.
type mute struct {
	fake
	bulk bool
}

func (s *mute) Publish(ctx context.Context, messages []brokers.Message) []brokers.Result {
	results := make([]brokers.Result, len(messages))
	for i, m := range messages {
		switch {
		case ctx.Err() != nil:
			results[i].Err = brokers.NotSentBecause(ctx.Err())
		case string(m.Payload) == "poison":
			<-ctx.Done()
			results[i].Err = brokers.Unreachable(brokers.ScopeBroker, ctx.Err())
		}
	}
	if s.bulk && ctx.Err() != nil {
		for i := range results {
			results[i].Err = brokers.Unreachable(brokers.ScopeBroker, ctx.Err())
		}
	}
	return results
}

// A destination that is out is tried with a few messages of one worker; the others flow, and it
// comes back by itself.
func TestProcessorBreakerOfADestination(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		var (
			missing atomic.Bool
			tried   atomic.Int64
		)
		missing.Store(true)
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			if m.Destination == "missing" {
				if tried.Add(1); missing.Load() {
					return brokers.Unavailable(brokers.ScopeDestination, errors.New("no such topic"))
				}
			}
			return nil
		}}
		r := newRig(t, path, broker, outbox.Policy{PollMin: 5 * time.Second, PollMax: 5 * time.Second})
		t.Cleanup(func() { _ = r.db.Close() })
		for i := range 400 {
			r.insert(fmt.Sprintf("k%d", i%300), strconv.Itoa(i))
		}
		_, err := r.db.ExecContext(t.Context(), "UPDATE outbox_messages SET stream = 'missing' WHERE ordering_key < 'k2'") // 111 keys
		require.NoError(t, err)
		waiting := r.query("SELECT count(*) FROM outbox_messages WHERE stream = 'missing'")
		r.start()
		r.until(time.Minute, func() bool { return r.open() == waiting })
		time.Sleep(10 * time.Minute)
		assert.Equal(t, waiting, r.query("SELECT count(*) FROM outbox_messages WHERE finished_at IS NULL AND attempts = 0"))
		stats := r.proc.Stats()
		assert.Equal(t, []string{"missing"}, stats.UnavailableDestinations)
		assert.False(t, stats.Unavailable, "the broker itself is well")
		// Before the breaker opens three batches meet it; then ten at most try every eleven seconds
		// and a quarter, or more seldom.
		assert.Less(t, tried.Load(), int64(3*100+10*(600*4/45+7)))
		missing.Store(false)
		r.until(2*time.Minute, func() bool { return r.open() == "0" })
		r.stop()
		assert.Empty(t, r.proc.Stats().UnavailableDestinations)
	})
}

// A pause stops the delivery in the middle of a batch, gives back what is claimed, and ends where
// it began.
func TestProcessorPause(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := &fake{publish: func(context.Context, brokers.Message) error {
			time.Sleep(100 * time.Millisecond)
			return nil
		}}
		r := newRig(t, path, broker, outbox.Policy{})
		t.Cleanup(func() { _ = r.db.Close() })
		for i := range 900 {
			r.insert(fmt.Sprintf("k%d", i%7), strconv.Itoa(i))
		}
		r.start()
		r.until(time.Minute, func() bool { return len(broker.delivered()) >= 20 })
		_, err := r.store.Pause(t.Context(), admin.Pause{Broker: "b"})
		require.NoError(t, err)
		r.until(time.Minute, func() bool { return r.proc.Stats().Paused })
		time.Sleep(15 * time.Second) // the call that was in progress
		sent := len(broker.delivered())
		assert.Less(t, sent, 300)
		time.Sleep(time.Hour)
		assert.Len(t, broker.delivered(), sent, "nothing goes out")
		assert.Equal(t, strconv.Itoa(900-sent), r.query("SELECT count(*) FROM outbox_messages WHERE status = 'pending' AND attempts = 0"))
		assert.Equal(t, relay.BreakerClosed, r.proc.Stats().Breaker, "the broker is not ill")

		_, err = r.store.Resume(t.Context(), "b")
		require.NoError(t, err)
		r.until(5*time.Minute, func() bool { return r.open() == "0" })
		r.stop()
		assert.False(t, r.proc.Stats().Paused)
		assert.Len(t, broker.delivered(), 900, "once each")
	})
}

// A process that starts while the broker is paused sends nothing, and ends when it is told to.
func TestProcessorStartsPaused(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := &fake{publish: func(context.Context, brokers.Message) error { return nil }}
		r := newRig(t, path, broker, outbox.Policy{})
		t.Cleanup(func() { _ = r.db.Close() })
		_, err := r.store.Pause(t.Context(), admin.Pause{Broker: "b"})
		require.NoError(t, err)
		r.insert("", "1")
		r.start()
		time.Sleep(time.Hour)
		assert.Equal(t, "pending 0", r.status("1"))
		r.stop()
		assert.Empty(t, broker.delivered())
	})
}

// The rate is kept, by all workers together, and evenly: a claim takes no more than can go out.
func TestProcessorRate(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{0.5, 20, 3000} {
		t.Run(fmt.Sprintf("%g", rate), func(t *testing.T) {
			inBubble(t, func(t *testing.T, path string) {
				var times []time.Time
				lock := make(chan struct{}, 1)
				broker := &fake{publish: func(context.Context, brokers.Message) error {
					lock <- struct{}{}
					times = append(times, time.Now())
					<-lock
					return nil
				}}
				r := newRig(t, path, broker, outbox.Policy{Rate: rate, PollMin: time.Second})
				t.Cleanup(func() { _ = r.db.Close() })
				n := int(min(rate*10, 600)) + 1
				for i := range n {
					r.insert("", strconv.Itoa(i))
				}
				r.start()
				var most int
				r.until(5*time.Minute, func() bool {
					inHand, err := strconv.Atoi(r.query("SELECT count(*) FROM outbox_messages WHERE status = 'processing'"))
					require.NoError(t, err)
					most = max(most, inHand)
					return r.open() == "0"
				})
				r.stop()
				burst := max(1, min(rate/10, 100))
				took := times[len(times)-1].Sub(times[0]).Seconds()
				assert.GreaterOrEqual(t, took*rate, float64(n)-1-burst, "no faster")
				assert.LessOrEqual(t, took*rate, float64(n)*1.2+burst+rate, "not much slower") // a poll or two
				assert.LessOrEqual(t, float64(most), 2*burst, "two workers")
			})
		})
	}
}

// A processor that waits for its rate stops at once.
func TestProcessorStopsWhileThrottled(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := &fake{publish: func(context.Context, brokers.Message) error { return nil }}
		r := newRig(t, path, broker, outbox.Policy{Rate: 0.001, PollMin: time.Second})
		t.Cleanup(func() { _ = r.db.Close() })
		for i := range 5 {
			r.insert("k", strconv.Itoa(i))
		}
		r.start()
		r.until(time.Minute, func() bool { return r.open() == "4" })
		time.Sleep(100 * time.Second)
		began := time.Now()
		r.stop()
		assert.Less(t, time.Since(began), time.Second)
		assert.Equal(t, "4", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'pending' AND attempts = 0"))
	})
}
