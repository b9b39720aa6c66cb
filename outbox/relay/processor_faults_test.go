package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// breaking is a broker whose implementation breaks down as long as it is told to.
type breaking struct {
	fake

	breakDown func() []brokers.Result
	repaired  atomic.Bool
}

func (b *breaking) Publish(ctx context.Context, messages []brokers.Message) []brokers.Result {
	if b.breakDown != nil && !b.repaired.Load() {
		return b.breakDown()
	}
	return b.fake.Publish(ctx, messages)
}

// An implementation that breaks down with every message is an outage: no message is to blame, and
// all arrive when it is repaired.
func TestProcessorSurvivesABrokerThatAlwaysBreaksDown(t *testing.T) {
	t.Parallel()
	for name, breakDown := range map[string]func() []brokers.Result{
		"panics":        func() []brokers.Result { panic("boom") },
		"says nothing":  func() []brokers.Result { return nil },
		"says too much": func() []brokers.Result { return make([]brokers.Result, 1000) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, path string) {
				var calls atomic.Int64
				broker := &breaking{fake: fake{publish: func(context.Context, brokers.Message) error { return nil }}}
				broker.breakDown = func() []brokers.Result { calls.Add(1); return breakDown() }
				r := newRig(t, path, broker, outbox.Policy{PollMax: 10 * time.Second, Retry: outbox.Retry{BaseDelay: time.Second}})
				t.Cleanup(func() { _ = r.db.Close() })
				for i := range 30 {
					r.insert(strconv.Itoa(i%20), strconv.Itoa(i))
				}
				r.start()
				time.Sleep(10 * time.Minute)
				assert.Equal(t, []string{"s"}, r.proc.Stats().UnavailableDestinations)
				assert.Equal(t, "30", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'pending' AND attempts = 0"))
				assert.Less(t, calls.Load(), int64(11*10*60/10+200), "it is not hammered")
				broker.repaired.Store(true)
				r.until(time.Minute, func() bool { return r.open() == "0" })
				r.stop()
				assert.Equal(t, "30", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'published' AND attempts = 1"))
			})
		})
	}
}

// A message at which the implementation breaks down is tried alone as long as nothing else is
// there: then nobody can tell whose fault it is. It pays as soon as others pass.
func TestProcessorChargesABreakdownWhenOthersPass(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			if m.ID == "bomb" {
				panic("boom")
			}
			return nil
		}}
		r := start(t, path, broker, outbox.Policy{PollMax: 10 * time.Second, Retry: outbox.Retry{BaseDelay: time.Second}})
		r.insert("k", "bomb")
		r.insert("k", "follower")
		time.Sleep(10 * time.Minute)
		assert.Equal(t, "pending 0", r.status("bomb"))
		r.insert("", "other")
		r.until(time.Minute, func() bool { return r.status("other") == "published 1" })
		r.until(10*time.Minute, func() bool { return r.open() == "0" })
		assert.Equal(t, "abandoned 5", r.status("bomb"))
		r.stop()
		assert.Equal(t, "2", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'published' AND attempts = 1"))
	})
}

// An implementation that breaks down at each message of one destination is an outage of that one, whatever
// it answers for others.
func TestProcessorBreakdownAtADestination(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]error{"others pass": nil, "others are out": brokers.Unavailable(brokers.ScopeDestination, errors.New("no such topic"))} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, path string) {
				var repaired atomic.Bool
				broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
					if m.Destination == "s" && !repaired.Load() {
						panic("boom")
					}
					return answer
				}}
				r := start(t, path, broker, outbox.Policy{Workers: 1, PollMin: time.Second, PollMax: 20 * time.Second})
				for i := range 20 {
					r.insert(strconv.Itoa(i), strconv.Itoa(i))
				}
				for i := range 120 {
					r.insertFor("other", "", fmt.Sprint("other", i), 0)
					time.Sleep(10 * time.Second)
				}
				assert.Equal(t, "20", r.query("SELECT count(*) FROM outbox_messages WHERE stream = 's' AND status = 'pending' AND attempts = 0"))
				assert.Contains(t, r.proc.Stats().UnavailableDestinations, "s")
				if answer == nil {
					repaired.Store(true)
					r.until(2*time.Hour, func() bool { return r.open() == "0" })
				}
				r.stop()
			})
		})
	}
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
				t.Cleanup(func() { _ = r.db.Close() })
				r.insert("a", "fast")
				r.insert("b", "slow")
				r.insert("b", "follower")
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

// Messages that may have killed a process are tried alone. When their broker hangs, the others wait
// for that, but not long, and not again and again.
func TestEngineIsolatesMessagesOfABrokerThatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		hung := &fake{publish: func(ctx context.Context, _ brokers.Message) error {
			<-ctx.Done()
			return brokers.Unreachable(brokers.ScopeBroker, ctx.Err())
		}}
		good := memory.New()
		r := newRig(t, path, good, outbox.Policy{})
		t.Cleanup(func() { _ = r.db.Close() })
		for i := range 10 {
			r.insert("", strconv.Itoa(i))
		}
		_, err := r.db.ExecContext(t.Context(), "UPDATE outbox_messages SET target_broker = 'hung', crashes = 20")
		require.NoError(t, err)
		engine, err := relay.NewEngine(relay.EngineConfig{
			Stores: map[string]driver.Delivery{"d": r.store}, Log: slog.New(slog.DiscardHandler),
			Brokers: map[string]relay.Target{"b": {Broker: good}, "hung": {Broker: hung, Policy: outbox.Policy{Workers: 4}}},
		})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- engine.Run(ctx) }()
		late := 0
		for i := range 80 {
			name := "good" + strconv.Itoa(i)
			r.insert("", name)
			inserted := time.Now()
			engine.Wake("d", wakeup.WakeUp{Broker: "b"})
			r.until(4*time.Second, func() bool { return r.status(name) == "published 1" })
			if time.Since(inserted) > 500*time.Millisecond {
				late++
			}
			time.Sleep(100 * time.Millisecond)
		}
		assert.Less(t, late, 8, "of 80 in ten seconds or more")
		stop()
		require.NoError(t, <-done)
	})
}

// Messages of a destination that is missing are tried again and again. However many they are, they
// leave time for the others.
func TestProcessorManyMessagesOfAMissingDestination(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		var missing atomic.Bool
		missing.Store(true)
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			if m.Destination == "missing" && missing.Load() {
				time.Sleep(5 * time.Millisecond)
				return brokers.Unavailable(brokers.ScopeDestination, errors.New("no such topic"))
			}
			return nil
		}}
		r := newRig(t, path, broker, outbox.Policy{Workers: 1, BatchSize: 10, Breaker: outbox.Breaker{MinDelay: 50 * time.Millisecond, MaxDelay: 100 * time.Millisecond}})
		t.Cleanup(func() { _ = r.db.Close() })
		r.fill("lost", "", 100, 0, 0) // a round of tries takes half a second
		_, err := r.db.ExecContext(t.Context(), "UPDATE outbox_messages SET stream = 'missing'")
		require.NoError(t, err)
		r.start()
		time.Sleep(time.Second)
		for i := range 2 {
			name := "good-" + strconv.Itoa(i)
			r.insert("", name)
			r.until(2*time.Second, func() bool { return r.status(name) == "published 1" })
			time.Sleep(time.Second / 2)
		}
		assert.False(t, r.proc.Stats().Unavailable)
		assert.Equal(t, "100", r.query("SELECT count(*) FROM outbox_messages WHERE stream = 'missing' AND attempts = 0 AND finished_at IS NULL"))
		missing.Store(false)
		r.until(time.Minute, func() bool { return r.open() == "0" })
		r.stop()
	})
}

// A database that is silent does not keep a stopping processor for longer than it may take.
func TestProcessorStopsWhileTheDatabaseHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r := newRig(t, path, memory.New(), outbox.Policy{})
		t.Cleanup(func() { _ = r.db.Close() })
		store := &silent{Store: r.store}
		proc, err := relay.NewProcessor(relay.ProcessorConfig{
			Database: "d", Broker: "b", Store: store, Policy: outbox.Policy{ShutdownTimeout: 10 * time.Second}, Log: slog.New(slog.DiscardHandler),
			Target: &fake{publish: func(context.Context, brokers.Message) error { store.hangs.Store(true); return nil }},
		})
		require.NoError(t, err)
		r.insert("", "x")
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- proc.Run(ctx) }()
		time.Sleep(time.Minute)
		require.True(t, store.hangs.Load())
		stop()
		began := time.Now()
		require.NoError(t, <-done)
		assert.LessOrEqual(t, time.Since(began), 15*time.Second)
	})
}

// silent is a store whose database does not answer when it is told to hang.
type silent struct {
	driver.Store

	hangs atomic.Bool
}

func (s *silent) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	if s.hangs.Load() {
		<-ctx.Done()
		return driver.Exchanged{}, ctx.Err()
	}
	return s.Store.Exchange(ctx, completion, claim)
}

func (s *silent) Ready(ctx context.Context, broker string, busy wakeup.Set) (driver.Readiness, error) {
	if s.hangs.Load() {
		<-ctx.Done()
		return driver.Readiness{}, ctx.Err()
	}
	return s.Store.Ready(ctx, broker, busy)
}
