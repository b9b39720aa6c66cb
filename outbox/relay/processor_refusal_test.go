package relay_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/outbox"
)

// refuses is a refusal of which it is unknown whose it is, as an endpoint answers 400.
func refuses(scope brokers.Scope) error {
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

// What refuses all messages is out, whatever it says of each of them: they wait, with all their
// attempts, until it takes them.
func TestProcessorRefusalOfAll(t *testing.T) {
	forBoth(t, func(t *testing.T, path string, scope brokers.Scope) {
		var wrong atomic.Bool
		var calls atomic.Int64
		wrong.Store(true)
		broker := &fake{publish: func(context.Context, brokers.Message) error {
			calls.Add(1)
			if wrong.Load() {
				return refuses(scope)
			}
			return nil
		}}
		r := start(t, path, broker, outbox.Policy{Workers: 2, PollMin: 100 * time.Millisecond, PollMax: time.Second})
		const messages = 300
		for i := range messages {
			r.insert([]string{"", fmt.Sprint("k", i%100)}[i%2], fmt.Sprint(i))
		}
		time.Sleep(2 * time.Minute)
		assert.Equal(t, fmt.Sprint(messages), r.query("SELECT count(*) FROM outbox_messages WHERE finished_at IS NULL AND attempts = 0"))
		assert.Less(t, calls.Load(), int64(2000), "it is asked a few times for each opening of the breaker")
		wrong.Store(false)
		r.until(2*time.Hour, func() bool { return r.open() == "0" })
		assert.Equal(t, fmt.Sprint(messages), r.query("SELECT count(*) FROM outbox_messages WHERE status = 'published' AND attempts <= 1"))
		r.stop()
	})
}

// One that is refused while others get through is abandoned, however many are refused with it at the
// head, and costs the others nothing.
func TestProcessorRefusalOfSome(t *testing.T) {
	forBoth(t, func(t *testing.T, path string, scope brokers.Scope) {
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			if strings.HasPrefix(m.ID, "bad") {
				return refuses(scope)
			}
			return nil
		}}
		r := start(t, path, broker, outbox.Policy{
			Workers: 1, PollMin: 100 * time.Millisecond, PollMax: time.Second, Retry: outbox.Retry{MaxAttempts: 3, BaseDelay: time.Second},
		})
		for i := range 50 {
			r.insert(fmt.Sprint("k", i), fmt.Sprint("bad", i))
		}
		for i := range 100 {
			r.insert(fmt.Sprint("k", i), fmt.Sprint("good", i))
		}
		for i := 0; r.open() != "0" && i < 100; i++ { // others get through
			r.insert("", fmt.Sprint("more", i))
			time.Sleep(time.Second)
		}
		assert.Equal(t, "0", r.open())
		assert.Equal(t, "50", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'abandoned'"))
		assert.Equal(t, "100", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'published' AND ordering_key IS NOT NULL"))
		assert.Contains(t, r.query("SELECT max(last_error) FROM outbox_messages WHERE status = 'abandoned'"), `"class":"permanent"`)
		r.stop()
	})
}

// One that is alone spends its attempts: nothing else will come that could say whose fault it is. But
// where another is refused after it, or waits behind it, that is kept.
func TestProcessorRefusalOfOneAlone(t *testing.T) {
	forBoth(t, func(t *testing.T, path string, scope brokers.Scope) {
		var asked atomic.Int64
		broker := &fake{publish: func(context.Context, brokers.Message) error {
			asked.Add(1)
			return refuses(scope)
		}}
		r := start(t, path, broker, outbox.Policy{Retry: outbox.Retry{MaxAttempts: 4}, Workers: 1, PollMin: 100 * time.Millisecond, PollMax: time.Second})
		r.insert("k", "alone")
		r.until(time.Hour, func() bool { return r.open() == "0" })
		assert.Equal(t, int64(5), asked.Load(), "once before it is charged")
		assert.Equal(t, "abandoned 4", r.status("alone"))
		r.insert("k", "next")
		r.insert("k", "last")
		time.Sleep(time.Minute)
		assert.Equal(t, "pending 0", r.status("next"))
		r.stop()

		r = start(t, path, broker, r.policy) // a process that knows nothing of it
		time.Sleep(time.Minute)
		assert.Equal(t, "pending 0", r.status("next"))
		r.stop()
	})
}

// Messages that are refused when nothing else is there do not keep what comes later from being tried,
// however many they are; and then they end.
func TestProcessorRefusedHeads(t *testing.T) {
	t.Parallel()
	for _, heads := range []int{2, 150} {
		t.Run(fmt.Sprint(heads), func(t *testing.T) {
			forBoth(t, func(t *testing.T, path string, scope brokers.Scope) {
				broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
					if strings.HasPrefix(m.ID, "bad") {
						return refuses(scope)
					}
					return nil
				}}
				r := start(t, path, broker, outbox.Policy{
					Workers: 2, PollMin: 100 * time.Millisecond, PollMax: time.Second, Retry: outbox.Retry{MaxAttempts: 3, BaseDelay: time.Second},
				})
				for i := range heads {
					r.insert(fmt.Sprint("b", i), fmt.Sprint("bad", i))
				}
				time.Sleep(3 * time.Minute)
				assert.Equal(t, fmt.Sprint(heads), r.open(), "there is no proof")
				for i := range 50 {
					r.insert(fmt.Sprint("g", i), fmt.Sprint("good", i))
				}
				r.until(3*time.Minute, func() bool { return len(broker.delivered()) == 50 })
				for i := 0; r.open() != "0" && i < 200; i++ {
					r.insert("", fmt.Sprint("more", i))
					time.Sleep(5 * time.Second)
				}
				assert.Equal(t, fmt.Sprint(heads), r.query("SELECT count(*) FROM outbox_messages WHERE status = 'abandoned'"))
				r.stop()
			})
		})
	}
}

// The same holds for messages at which the connection breaks.
func TestProcessorHeadsThatBreakTheConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			if strings.HasPrefix(m.ID, "bad") {
				return brokers.Unreachable(brokers.ScopeBroker, errors.New("connection reset"))
			}
			return nil
		}}
		r := start(t, path, broker, outbox.Policy{Workers: 2, PollMin: 100 * time.Millisecond, PollMax: time.Second})
		for i := range 5 {
			r.insert(fmt.Sprint("b", i), fmt.Sprint("bad", i))
		}
		time.Sleep(3 * time.Minute)
		for i := range 20 {
			r.insert(fmt.Sprint("g", i), fmt.Sprint("good", i))
		}
		r.until(5*time.Minute, func() bool { return len(broker.delivered()) == 20 })
		r.stop()
	})
}

// What was refused with all else before a short good spell is not proven by it.
func TestProcessorRefusalAroundAGoodSpell(t *testing.T) {
	forBoth(t, func(t *testing.T, path string, scope brokers.Scope) {
		var wrong atomic.Bool
		wrong.Store(true)
		broker := &fake{publish: func(context.Context, brokers.Message) error {
			if wrong.Load() {
				return refuses(scope)
			}
			return nil
		}}
		r := start(t, path, broker, outbox.Policy{Workers: 2, PollMin: 100 * time.Millisecond, PollMax: time.Second})
		for i := range 200 {
			r.insert(fmt.Sprint("b", i), fmt.Sprint("m", i))
		}
		time.Sleep(time.Minute)
		wrong.Store(false)
		r.until(time.Hour, func() bool { return len(broker.delivered()) > 0 })
		wrong.Store(true)
		for i := range 50 { // the spell may have left one message alone, which is charged rightly
			r.insert(fmt.Sprint("c", i), fmt.Sprint("n", i))
		}
		time.Sleep(3 * time.Minute)
		assert.Equal(t, "0", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'abandoned'"))
		assert.Equal(t, "0", r.query("SELECT count(*) FROM outbox_messages WHERE finished_at IS NULL AND attempts > 1"))
		r.stop()
	})
}

// One of two that were refused ends when the other has gone.
func TestProcessorRefusalOfTheLastOne(t *testing.T) {
	forBoth(t, func(t *testing.T, path string, scope brokers.Scope) {
		broker := &fake{publish: func(context.Context, brokers.Message) error { return refuses(scope) }}
		r := start(t, path, broker, outbox.Policy{Workers: 1, PollMin: 100 * time.Millisecond, PollMax: time.Second, Retry: outbox.Retry{MaxAttempts: 3, BaseDelay: time.Second}})
		r.insert("", "one")
		r.insert("", "two")
		time.Sleep(time.Minute)
		assert.Equal(t, "2", r.open())
		_, err := r.db.ExecContext(t.Context(), "DELETE FROM outbox_messages WHERE CAST(payload AS TEXT) = 'two'")
		require.NoError(t, err)
		r.until(15*time.Minute, func() bool { return r.open() == "0" })
		r.stop()
	})
}

// A partition that is out costs its keys a pause, and nothing else: no attempt, no order, and not
// the other keys of the destination.
func TestProcessorPartitionOut(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		var out atomic.Bool
		out.Store(true)
		var calls atomic.Int64
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			if out.Load() && m.OrderingKey == "out" {
				calls.Add(1)
				return brokers.Unreachable(brokers.ScopePartition, errors.New("its leader does not answer"))
			}
			return nil
		}}
		r := start(t, path, broker, outbox.Policy{Workers: 2, PollMin: 100 * time.Millisecond, PollMax: time.Second})
		for i := range 10 {
			r.insert("out", fmt.Sprint("out", i))
			r.insert(fmt.Sprint("k", i), fmt.Sprint("in", i))
		}
		r.until(time.Second, func() bool { return r.open() == "10" })
		time.Sleep(2 * time.Minute)
		assert.Less(t, calls.Load(), int64(60), "a try for each pause, which grows to that of the breaker")
		assert.Greater(t, calls.Load(), int64(8))
		out.Store(false)
		r.until(time.Minute, func() bool { return r.open() == "0" })
		assert.Equal(t, "20", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'published' AND attempts <= 1"))
		var order []string
		for _, id := range broker.delivered() {
			if strings.HasPrefix(id, "out") {
				order = append(order, id)
			}
		}
		assert.Equal(t, []string{"out0", "out1", "out2", "out3", "out4", "out5", "out6", "out7", "out8", "out9"}, order)
		r.stop()
	})
}

// However many keys a partition has, they come soon after it is back.
func TestProcessorPartitionIsBack(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		var out atomic.Bool
		out.Store(true)
		broker := &fake{publish: func(context.Context, brokers.Message) error {
			if out.Load() {
				time.Sleep(100 * time.Millisecond)
				return brokers.Unreachable(brokers.ScopePartition, context.DeadlineExceeded)
			}
			return nil
		}}
		r := start(t, path, broker, outbox.Policy{Workers: 2, PollMin: 100 * time.Millisecond, PollMax: time.Second})
		for i := range 300 {
			r.insert(fmt.Sprint("k", i), fmt.Sprint("out", i))
		}
		time.Sleep(2 * time.Minute)
		out.Store(false)
		r.until(2*time.Minute, func() bool { return r.open() == "0" })
		r.stop()
	})
}
