package relay

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
)

var (
	errDown    = brokers.Unreachable(brokers.ScopeBroker, errors.New("connection refused"))
	errMissing = brokers.Unavailable(brokers.ScopeDestination, errors.New("no such topic"))
)

// A broker that is out for a day costs no message an attempt, and the backlog drains when it is back.
func TestProcessorOutlivesADaysOutage(t *testing.T) {
	testenv.NeedSeconds(t)
	inBubble(t, func(t *testing.T, path string) {
		broker := failingWith(errDown, all)
		r := start(t, path, broker, outbox.Policy{PollMin: 10 * time.Minute, PollMax: 30 * time.Minute, Breaker: outbox.Breaker{MaxDelay: 30 * time.Minute}})
		r.fill(60, keyed("k", 20))
		for range 24 {
			time.Sleep(time.Hour)
			r.insert(row{name: "later"})
		}
		assert.Equal(t, 84, r.count("finished_at IS NULL AND attempts = 0 AND crashes = 0"))
		assert.Equal(t, BreakerOpen, r.proc.Stats().Breaker)
		assert.Less(t, broker.calls.Load(), int64(24*60*10/20), "it is tried now and then, with few messages")
		broker.healed.Store(true)
		r.drained(2 * time.Hour)
		assert.Equal(t, 84, r.count("status = 'published' AND attempts = 1"))
		assert.Equal(t, BreakerClosed, r.proc.Stats().Breaker)
	})
}

// A broker that takes nothing and says nothing is not asked again and again without a pause.
func TestProcessorPausesWhenNothingIsTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		asked := 0
		broker := failingWith(brokers.ErrNotSent, func(brokers.Message) bool { asked++; return asked < 1000 }) // then it ends in any case
		r := newRig(t, path, broker, outbox.Policy{PollMax: 10 * time.Second})
		r.insert(row{name: "x"})
		r.start()
		time.Sleep(time.Minute)
		r.stop()
		assert.Positive(t, broker.calls.Load())
		assert.Less(t, broker.calls.Load(), int64(20))
		assert.Equal(t, "pending 0", r.status("x"))
	})
}

// An adapter sends nothing of a key while an earlier call for it hangs. Those messages stand at the
// head of every claim; they must not be all that tries out the broker, or nothing else would ever
// pass.
func TestProcessorOneKeyThatIsNotSentHoldsBackItselfOnly(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := failingWith(brokers.NotSentBecause(errors.New("an earlier call for its key hangs")), named("k"))
		r := newRig(t, path, broker, outbox.Policy{PollMin: time.Second, PollMax: 5 * time.Second})
		r.fill(30, keyed("k", 1))
		r.start()
		for i := range 3 { // traffic goes on
			time.Sleep(time.Minute)
			r.insert(row{key: fmt.Sprint("other", i%2), name: fmt.Sprint("other", i)})
		}
		r.until(time.Minute, func() bool { return r.open() == 30 })
		assert.Equal(t, 30, r.count("finished_at IS NULL AND attempts = 0"))
		broker.healed.Store(true)
		r.drained(time.Minute)
		assert.Equal(t, names("k", 30), broker.delivered("k"))
	})
}

// A part of the broker says itself that it is out, while others work: what is for it waits, for as
// long as it lasts, and nothing is charged.
func TestProcessorChargesNothingForAServersOwnWord(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := failingWith(brokers.Unavailable(brokers.ScopeBroker, errors.New("out of memory")), named("sick"))
		r := newRig(t, path, broker, outbox.Policy{Retry: outbox.Retry{BaseDelay: time.Second, MaxDelay: time.Minute}, PollMin: 5 * time.Second, PollMax: 10 * time.Second})
		r.fill(2, keyed("sick", 1))
		r.fill(30, loose("m"))
		r.start()
		for i := range 15 { // traffic goes on
			r.insert(row{name: fmt.Sprint("more", i)})
			time.Sleep(10 * time.Second)
		}
		assert.Zero(t, r.charged())
		broker.healed.Store(true)
		r.drained(5 * time.Minute)
		assert.Equal(t, 47, r.count("status = 'published'"))
	})
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

// A message that the broker never answers, while others pass, is charged with its attempts in the
// end; the breaker stays closed, and what stands beside it in a call is neither charged nor lost.
func TestProcessorChargesAMessageThatTimesOut(t *testing.T) {
	t.Parallel()
	for _, bulk := range []bool{false, true} {
		t.Run(fmt.Sprintf("bulk=%t", bulk), func(t *testing.T) {
			inBubble(t, func(t *testing.T, path string) {
				policy := outbox.Policy{
					PublishTimeout: 5 * time.Second, PollMin: 2 * time.Second, Retry: outbox.Retry{MaxAttempts: 3, BaseDelay: time.Second, MaxDelay: time.Minute},
				}
				r := newRig(t, path, &mute{bulk: bulk}, policy)
				r.fill(27, loose("m"))
				r.insert(row{key: "k", name: "poison"}, row{key: "k", name: "follower"})
				r.start()
				opened := false
				more := 0
				for ; r.status("poison") != "abandoned 3" && more < 150; more++ { // traffic goes on
					r.insert(row{name: fmt.Sprint("more", more)})
					time.Sleep(5 * time.Second)
					opened = opened || r.proc.Stats().Breaker != BreakerClosed
				}
				assert.Equal(t, "abandoned 3", r.status("poison"))
				r.drained(5 * time.Minute)
				assert.Equal(t, 28+more, r.count("status = 'published' AND attempts = 1"))
				if !bulk { // a call with one answer for all can look like an outage
					assert.False(t, opened, "one message among others does not open the breaker")
				}
			})
		})
	}
}

// A destination that is out is tried with a few messages of one worker; the others flow, and it
// comes back by itself.
func TestProcessorBreakerOfADestination(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		var tried int
		broker := failingWith(errMissing, func(m brokers.Message) bool {
			if m.Destination == "missing" {
				tried++
			}
			return m.Destination == "missing"
		})
		r := newRig(t, path, broker, outbox.Policy{PollMin: 5 * time.Second, PollMax: 5 * time.Second, Workers: 1})
		const waiting = 60
		r.fill(120, func(i int) row {
			if i < waiting {
				return row{key: fmt.Sprint("lost", i%40), name: strconv.Itoa(i), stream: "missing"}
			}
			return row{key: fmt.Sprint("k", i%40), name: strconv.Itoa(i)}
		})
		r.start()
		r.until(time.Minute, func() bool { return r.open() == waiting })
		time.Sleep(3 * time.Minute)
		assert.Equal(t, waiting, r.count("finished_at IS NULL AND attempts = 0"))
		stats := r.proc.Stats()
		assert.Equal(t, []string{"missing"}, stats.UnavailableDestinations)
		assert.False(t, stats.Unavailable, "the broker itself is well")
		// Before the breaker opens three batches meet it; then ten at most try every eleven seconds
		// and a quarter, or more seldom.
		assert.Less(t, tried, 3*waiting+10*(180*4/45+7))
		broker.healed.Store(true)
		r.drained(2 * time.Minute)
		r.stop()
		assert.Empty(t, r.proc.Stats().UnavailableDestinations)
	})
}

// Messages of a destination that is missing are tried again and again. However many they are, they
// leave time for the others.
func TestProcessorManyMessagesOfAMissingDestination(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := failingWith(errMissing, func(m brokers.Message) bool {
			if m.Destination == "missing" {
				time.Sleep(10 * time.Millisecond)
			}
			return m.Destination == "missing"
		})
		breaker := outbox.Breaker{MinDelay: 50 * time.Millisecond, MaxDelay: 100 * time.Millisecond}
		r := newRig(t, path, broker, outbox.Policy{Workers: 1, BatchSize: 10, Breaker: breaker})
		r.fill(50, func(i int) row { return row{name: fmt.Sprint("lost", i), stream: "missing"} }) // a round of tries takes half a second
		r.start()
		time.Sleep(time.Second)
		for i := range 2 {
			name := fmt.Sprint("good", i)
			r.insert(row{name: name})
			r.until(2*time.Second, func() bool { return r.status(name) == "published 1" })
			time.Sleep(time.Second / 2)
		}
		assert.False(t, r.proc.Stats().Unavailable)
		assert.Equal(t, 50, r.count("stream = 'missing' AND attempts = 0 AND finished_at IS NULL"))
		broker.healed.Store(true)
		r.drained(time.Minute)
	})
}

// What is not sent takes nothing from the rate: the messages of a destination that is out slow down
// no others.
func TestProcessorRateIsForWhatIsSent(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r := newRig(t, path, failingWith(errMissing, to("missing")), outbox.Policy{Rate: 1, PollMin: time.Second})
		r.fill(30, func(i int) row { return row{name: fmt.Sprint("lost", i), stream: "missing"} })
		r.fill(10, loose("m"))
		r.start()
		r.until(30*time.Second, func() bool { return r.open() == 30 })
	})
}

// A partition that is out costs its keys a pause, and nothing else: no attempt, no order, and not
// the other keys of the destination.
func TestProcessorPartitionOut(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		tries := 0
		broker := failingWith(brokers.Unreachable(brokers.ScopePartition, errors.New("its leader does not answer")), func(m brokers.Message) bool {
			if m.OrderingKey == "out-0" {
				tries++
			}
			return m.OrderingKey == "out-0"
		})
		r := start(t, path, broker, outbox.Policy{Workers: 1, PollMin: time.Second, PollMax: time.Second})
		r.fill(10, keyed("out", 1))
		r.fill(10, keyed("in", 10))
		r.until(2*time.Second, func() bool { return r.open() == 10 })
		time.Sleep(time.Minute)
		assert.Less(t, tries, 30, "a try for each pause, which grows to that of the breaker")
		assert.Greater(t, tries, 4)
		broker.healed.Store(true)
		r.drained(time.Minute)
		assert.Equal(t, 20, r.count("status = 'published' AND attempts <= 1"))
		assert.Equal(t, names("out", 10), broker.delivered("out"))
	})
}

// Messages that may have killed a process are tried alone. When their broker hangs, the others wait
// for that, but not long, and not again and again.
func TestEngineIsolatesMessagesOfABrokerThatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		hung := &fake{publish: func(ctx context.Context, _ brokers.Message) error {
			<-ctx.Done()
			return brokers.Unreachable(brokers.ScopeBroker, ctx.Err())
		}}
		r := newRig(t, path, &fake{}, outbox.Policy{})
		r.fill(10, loose("m"))
		r.exec("UPDATE outbox_messages SET target_broker = 'hung', crashes = 20")
		engine, _ := r.engine(EngineConfig{Brokers: map[string]Target{"b": {Broker: &fake{}}, "hung": {Broker: hung, Policy: outbox.Policy{Workers: 4}}}})
		late := 0
		for i := range 80 {
			name := fmt.Sprint("good", i)
			r.insert(row{name: name})
			inserted := time.Now()
			engine.Wake("d", wakeup.WakeUp{Broker: "b"})
			r.until(4*time.Second, func() bool { return r.status(name) == "published 1" })
			if time.Since(inserted) > 500*time.Millisecond {
				late++
			}
			time.Sleep(100 * time.Millisecond)
		}
		assert.Less(t, late, 8, "of 80 in ten seconds or more")
	})
}
