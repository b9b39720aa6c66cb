package relay

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
)

// refusal is one of which it is unknown whose it is, as an endpoint answers 400.
func refusal(scope brokers.Scope) error {
	return brokers.Refused(scope, brokers.Permanent(errors.New("it answered 400")))
}

// forBoth runs a test with a broker that refuses as a whole, and with one of which a destination does.
func forBoth(t *testing.T, test func(t *testing.T, path string, scope brokers.Scope)) {
	t.Helper()
	t.Parallel()
	for _, scope := range []brokers.Scope{brokers.ScopeBroker, brokers.ScopeDestination} {
		t.Run(string(scope), func(t *testing.T) {
			inBubble(t, func(t *testing.T, path string) { test(t, path, scope) })
		})
	}
}

// impatient is a policy of relays that poll each second, patient of those that poll now and then.
// Neither leaves its retries to chance.
func impatient(attempts int) outbox.Policy {
	return outbox.Policy{Workers: 1, PollMin: time.Second, PollMax: time.Second, Retry: outbox.Retry{MaxAttempts: attempts, BaseDelay: time.Second, Jitter: -1}}
}

func patient() outbox.Policy {
	return outbox.Policy{PollMin: 30 * time.Second, PollMax: time.Minute, Breaker: outbox.Breaker{MinDelay: 10 * time.Second, MaxDelay: time.Minute}, Retry: outbox.Retry{Jitter: -1}}
}

// traffic writes rows that others can be compared with, one after each pause, until no row is open.
func (r *rig) traffic(most int, pause time.Duration) {
	r.t.Helper()
	for i := 0; r.open() > 0 && i < most; i++ {
		r.insert(row{name: fmt.Sprint("more", i)})
		time.Sleep(pause)
	}
}

// What refuses all messages is out, whatever it says of each of them: they wait, with all their
// attempts, until it takes them. What was refused with all else before a short good spell is not
// proven by it.
func TestProcessorRefusalOfAll(t *testing.T) {
	forBoth(t, func(t *testing.T, path string, scope brokers.Scope) {
		broker := failingWith(refusal(scope), all)
		policy := impatient(5)
		policy.Workers = 2
		r := start(t, path, broker, policy)
		const messages = 60
		r.fill(messages, func(i int) row { return row{key: []string{"", fmt.Sprint("k", i%20)}[i%2], name: fmt.Sprint("m", i)} })
		time.Sleep(time.Minute)
		assert.Equal(t, messages, r.count("finished_at IS NULL AND attempts = 0"))
		assert.Less(t, broker.calls.Load(), int64(600), "it is asked a few times for each opening of the breaker")
		broker.healed.Store(true)
		r.until(time.Hour, func() bool { return len(broker.delivered("")) > 0 })
		broker.healed.Store(false)
		r.fill(20, keyed("n", 20)) // the spell may have left one message alone, which is charged rightly
		time.Sleep(time.Minute)
		assert.Zero(t, r.count("status = 'abandoned' OR finished_at IS NULL AND attempts > 1"))
		broker.healed.Store(true)
		r.drained(2 * time.Hour)
		assert.Zero(t, r.count("status <> 'published'"))
	})
}

// One that is refused while others get through is abandoned, however many are refused with it at the
// head, and costs the others nothing.
func TestProcessorRefusalOfSome(t *testing.T) {
	forBoth(t, func(t *testing.T, path string, scope brokers.Scope) {
		r := start(t, path, failingWith(refusal(scope), named("bad")), impatient(3))
		r.fill(20, func(i int) row { return row{key: fmt.Sprint("k", i), name: fmt.Sprint("bad", i)} })
		r.fill(40, func(i int) row { return row{key: fmt.Sprint("k", i), name: fmt.Sprint("good", i)} })
		r.traffic(100, time.Second)
		assert.Zero(t, r.open())
		assert.Equal(t, 20, r.count("status = 'abandoned'"))
		assert.Equal(t, 40, r.count("status = 'published' AND ordering_key IS NOT NULL"))
		assert.Contains(t, r.query("SELECT max(last_error) FROM outbox_messages WHERE status = 'abandoned'"), `"class":"permanent"`)
	})
}

// One that is alone spends its attempts: nothing else will come that could say whose fault it is. But
// where another is refused after it, or waits behind it, that is kept.
func TestProcessorRefusalOfOneAlone(t *testing.T) {
	forBoth(t, func(t *testing.T, path string, scope brokers.Scope) {
		broker := failingWith(refusal(scope), all)
		policy := impatient(4)
		policy.PollMin, policy.PollMax, policy.Retry.BaseDelay = 5*time.Second, 5*time.Second, 30*time.Second
		r := start(t, path, broker, policy)
		r.insert(row{key: "k", name: "alone"})
		r.drained(time.Hour)
		assert.EqualValues(t, 5, broker.calls.Load(), "once before it is charged")
		assert.Equal(t, "abandoned 4", r.status("alone"))
		r.insert(row{key: "k", name: "next"}, row{key: "k", name: "last"})
		time.Sleep(time.Minute)
		assert.Equal(t, "pending 0", r.status("next"))
		r.stop()
		stop := r.another() // a process that knows nothing of it
		time.Sleep(time.Minute)
		assert.Equal(t, "pending 0", r.status("next"))
		r.exec("DELETE FROM outbox_messages WHERE CAST(payload AS TEXT) = 'last'")
		r.drained(15 * time.Minute) // one of two that were refused ends when the other has gone
		stop()
	})
}

// Messages that are refused when nothing else is there do not keep what comes later from being tried,
// however many they are; and then they end.
func TestProcessorRefusedHeads(t *testing.T) {
	t.Parallel()
	for _, heads := range []int{2, 40} {
		t.Run(fmt.Sprint(heads), func(t *testing.T) {
			forBoth(t, func(t *testing.T, path string, scope brokers.Scope) {
				broker := failingWith(refusal(scope), named("bad"))
				r := start(t, path, broker, impatient(3))
				r.fill(heads, keyed("bad", heads))
				time.Sleep(time.Minute)
				assert.Equal(t, heads, r.open(), "there is no proof")
				r.fill(20, keyed("good", 20))
				r.until(3*time.Minute, func() bool { return len(broker.delivered("good")) == 20 })
				r.traffic(200, 5*time.Second)
				assert.Equal(t, heads, r.count("status = 'abandoned'"))
			})
		})
	}
}

// The same holds for messages at which the connection breaks.
func TestProcessorHeadsThatBreakTheConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := failingWith(brokers.Unreachable(brokers.ScopeBroker, errors.New("connection reset")), named("bad"))
		r := start(t, path, broker, impatient(5))
		r.fill(5, keyed("bad", 5))
		time.Sleep(2 * time.Minute)
		r.fill(20, keyed("good", 20))
		r.until(5*time.Minute, func() bool { return len(broker.delivered("good")) == 20 })
	})
}

// What waits for other destinations does not keep one that is alone at its own from ending.
func TestProcessorRefusalOfOneAloneAtItsDestination(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		policy := patient()
		policy.Retry.MaxAttempts = 3
		r := newRig(t, path, failingWith(refusal(brokers.ScopeDestination), to("s")), policy)
		r.fill(64, func(i int) row {
			return row{key: fmt.Sprint("o", i), name: fmt.Sprint("other", i), stream: "other", in: 72 * time.Hour}
		})
		r.insert(row{key: "k", name: "alone"})
		r.start()
		r.until(time.Hour, func() bool { return r.status("alone") == "abandoned 3" })
	})
}

// unsure is a store that does not tell which rows are open while it is broken.
type unsure struct {
	driver.Delivery

	broken atomic.Bool
}

func (s *unsure) Alone(ctx context.Context, broker, stream string, id int64) (bool, error) {
	if s.broken.Load() {
		return false, errors.New("no answer")
	}
	return s.Delivery.Alone(ctx, broker, stream, id)
}

// A message is not charged while the database does not tell whether others wait.
func TestProcessorRefusalWhileTheDatabaseDoesNotTell(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		store, policy := &unsure{}, patient()
		store.broken.Store(true)
		policy.Retry.MaxAttempts = 3
		r := newRig(t, path, failingWith(refusal(brokers.ScopeBroker), all), policy, func(c *ProcessorConfig) { store.Delivery, c.Store = c.Store, store })
		r.insert(row{name: "alone"})
		r.start()
		time.Sleep(time.Hour)
		assert.Equal(t, "pending 0", r.status("alone"))
		assert.NotZero(t, r.log.count("level=ERROR", "database call failed", "no answer"))
		store.broken.Store(false)
		r.until(time.Hour, func() bool { return r.status("alone") == "abandoned 3" })
	})
}

// A part of a destination that refuses all that it gets is out, whatever the other parts take: they
// prove nothing. A message that is alone at the destination ends, as everywhere.
func TestProcessorRefusalByAPartition(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		policy := outbox.Policy{Workers: 1, PollMin: 5 * time.Second, PollMax: 20 * time.Second, Retry: outbox.Retry{Jitter: -1}}
		r := start(t, path, failingWith(refusal(brokers.ScopePartition), named("sick")), policy)
		r.fill(20, keyed("sick", 20))
		r.fill(20, keyed("well", 20))
		for i := range 20 {
			r.insert(row{name: fmt.Sprint("more", i)})
			time.Sleep(10 * time.Second)
		}
		assert.Zero(t, r.charged())
		assert.Equal(t, 20, r.open())
		assert.Empty(t, r.proc.Stats().UnavailableDestinations)
		r.exec("DELETE FROM outbox_messages WHERE finished_at IS NULL AND ordering_key <> 'sick-7'")
		r.until(time.Hour, func() bool { return r.status("sick7") == "abandoned 5" })
	})
}

// breaking is a broker whose implementation breaks down until it is healed.
type breaking struct {
	fake

	breakDown func() []brokers.Result
	broke     atomic.Int64
}

func (b *breaking) Publish(ctx context.Context, messages []brokers.Message) []brokers.Result {
	if b.healed.Load() {
		return b.fake.Publish(ctx, messages)
	}
	b.broke.Add(1)
	return b.breakDown()
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
				broker := &breaking{breakDown: breakDown}
				r := newRig(t, path, broker, outbox.Policy{PollMax: 10 * time.Second, Retry: outbox.Retry{BaseDelay: time.Second}})
				r.fill(30, keyed("k", 20))
				r.start()
				time.Sleep(2 * time.Minute)
				assert.Equal(t, []string{"s"}, r.proc.Stats().UnavailableDestinations)
				assert.Equal(t, 30, r.count("status = 'pending' AND attempts = 0"))
				assert.Less(t, broker.broke.Load(), int64(11*2*60/10+200), "it is not hammered")
				broker.healed.Store(true)
				r.drained(time.Minute)
				assert.Equal(t, 30, r.count("status = 'published' AND attempts = 1"))
			})
		})
	}
}

// panics has a fake's failures be panics.
func panics(f *fake) *fake {
	publish := f.publish
	f.publish = func(ctx context.Context, m brokers.Message) error {
		if publish(ctx, m) != nil {
			panic("boom")
		}
		return nil
	}
	return f
}

// A message at which the implementation breaks down is tried alone as long as nothing else is
// there: then no relay can tell whose fault it is. It pays as soon as others pass.
func TestProcessorChargesABreakdownWhenOthersPass(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r := start(t, path, panics(failingWith(errNoLuck, named("bomb"))), outbox.Policy{PollMax: 10 * time.Second, Retry: outbox.Retry{BaseDelay: time.Second}})
		r.insert(row{key: "k", name: "bomb"}, row{key: "k", name: "follower"})
		time.Sleep(5 * time.Minute)
		assert.Equal(t, "pending 0", r.status("bomb"))
		r.fill(20, loose("other"))
		r.until(time.Minute, func() bool { return r.status("other0") == "published 1" })
		r.drained(10 * time.Minute)
		assert.Equal(t, "abandoned 5", r.status("bomb"))
		assert.Contains(t, r.query("SELECT last_error FROM outbox_messages WHERE status = 'abandoned'"), "panicked: boom")
		assert.Equal(t, 21, r.count("status = 'published' AND attempts = 1"))
	})
}

// An implementation that breaks down at each message of one destination is an outage of that one,
// whatever it answers for others.
func TestProcessorBreakdownAtADestination(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]error{"others pass": nil, "others are out": errMissing} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, path string) {
				broker := failingWith(answer, func(m brokers.Message) bool {
					if m.Destination == "s" {
						panic("boom")
					}
					return true
				})
				r := start(t, path, broker, outbox.Policy{Workers: 1, PollMin: 5 * time.Second, PollMax: 20 * time.Second})
				r.fill(20, keyed("m", 20))
				for i := range 15 {
					r.insert(row{name: fmt.Sprint("other", i), stream: "other"})
					time.Sleep(20 * time.Second)
				}
				assert.Equal(t, 20, r.count("stream = 's' AND status = 'pending' AND attempts = 0"))
				assert.Contains(t, r.proc.Stats().UnavailableDestinations, "s")
				if answer == nil {
					broker.healed.Store(true)
					r.drained(2 * time.Hour)
				}
			})
		})
	}
}

// A message at which the relay itself panics costs itself: it is found, alone, as if it had crashed
// the process, and abandoned; all others are delivered, those of its key after it.
func TestProcessorIsolatesTheRowOfAPanic(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := &fake{}
		observer := &seeing{publishing: func(call *Call) {
			for _, m := range call.Messages {
				if string(m.Payload) == "poison" {
					panic("poison")
				}
			}
		}}
		policy := outbox.Policy{PollMin: 10 * time.Second, PollMax: time.Minute, Retry: outbox.Retry{MaxAttempts: 3}}
		r := newRig(t, path, broker, policy, observed(observer))
		r.fill(111, keyed("m", 97))
		r.insert(row{key: "m-4", name: "poison"})
		r.fill(189, func(i int) row { return keyed("m", 97)(111 + i) })
		r.start()
		r.drained(24 * time.Hour)
		assert.Equal(t, "abandoned 3", r.status("poison"))
		assert.Contains(t, r.query("SELECT last_error FROM outbox_messages WHERE status = 'abandoned'"), outbox.ClassCrashed)
		delivered := map[string]bool{}
		for _, name := range broker.delivered("m") {
			delivered[name] = true
		}
		assert.Len(t, delivered, 300)
		assert.NotZero(t, r.log.count("panic survived", "poison"))
		assert.Equal(t, 1, r.count("status = 'abandoned'"))
	})
}

// panicky is a store of which claims and polls panic as long as it is broken.
type panicky struct {
	driver.Delivery

	broken atomic.Bool
}

func (s *panicky) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	if s.broken.Load() && claim != nil {
		panic("a row that nobody expected")
	}
	return s.Delivery.Exchange(ctx, completion, claim)
}

func (s *panicky) Ready(ctx context.Context, broker string, busy wakeup.Set) (driver.Readiness, error) {
	if s.broken.Load() && time.Now().Second()%2 == 0 { // each second time it gets as far as the claim
		panic("an answer that nobody expected")
	}
	return s.Delivery.Ready(ctx, broker, busy)
}

// A panic while the relay polls or claims is logged, with its stack and not with each try, and what
// waits is delivered when it is over, also where the claim was to try out a broker.
func TestProcessorSurvivesPanics(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		store, broker := &panicky{}, failingWith(errDown, all)
		policy := outbox.Policy{PollMin: 10 * time.Second, PollMax: time.Minute}
		r := newRig(t, path, broker, policy, func(c *ProcessorConfig) { store.Delivery, c.Store = c.Store, store })
		r.insert(row{key: "k", name: "waits"})
		r.start()
		r.until(time.Hour, func() bool { return r.proc.Stats().Breaker == BreakerOpen })
		store.broken.Store(true)
		time.Sleep(time.Hour)
		broker.healed.Store(true)
		for _, what := range []string{"a row that nobody expected", "an answer that nobody expected"} {
			assert.NotZero(t, r.log.count("level=ERROR", "panic survived", what, "refusal_test.go"), "%s", what)
		}
		assert.LessOrEqual(t, r.log.count("panic survived"), 61, "once a minute")
		store.broken.Store(false)
		r.drained(time.Hour)
		assert.Equal(t, "published 1", r.status("waits"))
	})
}
