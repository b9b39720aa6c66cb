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
		r := start(t, path, broker, outbox.Policy{Workers: 2, PollMin: 100 * time.Millisecond, PollMax: 500 * time.Millisecond})
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
		r := start(t, path, broker, outbox.Policy{Workers: 1, PollMin: 100 * time.Millisecond, PollMax: 500 * time.Millisecond})
		for i := range 50 {
			r.insert(fmt.Sprint("k", i), fmt.Sprint("bad", i))
		}
		for i := range 100 {
			r.insert(fmt.Sprint("k", i), fmt.Sprint("good", i))
		}
		r.until(10*time.Minute, func() bool { return r.open() == "0" })
		assert.Equal(t, "50", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'abandoned'"))
		assert.Equal(t, "100", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'published'"))
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
		r := start(t, path, broker, outbox.Policy{Retry: outbox.Retry{MaxAttempts: 4}, Workers: 1, PollMin: 100 * time.Millisecond, PollMax: 500 * time.Millisecond})
		r.insert("k", "alone")
		r.until(time.Hour, func() bool { return r.open() == "0" })
		assert.Equal(t, int64(5), asked.Load(), "once before it is charged")
		assert.Equal(t, "abandoned 4", r.status("alone"))
		r.insert("k", "next")
		r.insert("k", "last")
		time.Sleep(3 * time.Minute)
		assert.Equal(t, "pending 0", r.status("next"))
		r.stop()

		r = start(t, path, broker, r.policy) // a process that knows nothing of it
		time.Sleep(3 * time.Minute)
		assert.Equal(t, "pending 0", r.status("next"))
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
		r := start(t, path, broker, outbox.Policy{Workers: 2, PollMin: 100 * time.Millisecond, PollMax: 500 * time.Millisecond})
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
