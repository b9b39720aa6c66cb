package relay_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/outbox"
)

func TestProcessorOutageSpendsNoAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		var (
			down  atomic.Bool
			calls atomic.Int64
		)
		down.Store(true)
		broker := &fake{publish: func(context.Context, brokers.Message) error {
			if calls.Add(1); down.Load() {
				return brokers.Unreachable(brokers.ScopeBroker, errors.New("connection refused"))
			}
			return nil
		}}
		r := start(t, path, broker, outbox.Policy{PollMin: 5 * time.Second, PollMax: 10 * time.Second})
		for i := range 100 {
			r.insert("", strconv.Itoa(i))
		}
		time.Sleep(10 * time.Minute)
		assert.True(t, r.proc.Stats().Unavailable)
		assert.Equal(t, "100", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'pending' AND attempts = 0"))
		assert.Less(t, calls.Load(), int64(600/10*10+200), "the broker is not hammered")
		down.Store(false)
		r.until(time.Minute, func() bool { return r.open() == "0" })
		r.stop()
		assert.False(t, r.proc.Stats().Unavailable)
	})
}

func TestProcessorMissingDestinationHoldsBackItselfOnly(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		var missing atomic.Bool
		missing.Store(true)
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			if missing.Load() && m.Destination == "missing" {
				return brokers.Unavailable(brokers.ScopeDestination, errors.New("no such topic"))
			}
			return nil
		}}
		r := newRig(t, path, broker, outbox.Policy{})
		t.Cleanup(func() { _ = r.db.Close() })
		for i := range 300 {
			r.insert("", strconv.Itoa(i))
		}
		_, err := r.db.ExecContext(t.Context(), "UPDATE outbox_messages SET stream = 'missing' WHERE id % 3 = 0")
		require.NoError(t, err)
		r.start()
		r.until(time.Minute, func() bool { return r.open() == "100" })
		assert.False(t, r.proc.Stats().Unavailable)
		assert.Equal(t, "0", r.query("SELECT max(attempts) FROM outbox_messages WHERE stream = 'missing'"))
		missing.Store(false)
		r.until(time.Minute, func() bool { return r.open() == "0" })
		r.stop()
	})
}

// A broker that takes nothing and says nothing is not asked again and again without a pause.
func TestProcessorPausesWhenNothingIsTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		calls := 0
		broker := &fake{publish: func(context.Context, brokers.Message) error { calls++; return brokers.ErrNotSent }}
		r := newRig(t, path, broker, outbox.Policy{PollMax: 10 * time.Second})
		t.Cleanup(func() { _ = r.db.Close() })
		r.insert("", "x")
		r.start()
		time.Sleep(time.Minute)
		r.stop()
		assert.Positive(t, calls)
		assert.Less(t, calls, 20)
		assert.Equal(t, "pending 0", r.status("x"))
	})
}

// A message that makes an outage of its own does not hold up the others forever: they pass, and it
// ends abandoned.
func TestProcessorFindsAMessageThatLooksLikeAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			if m.ID == "poison" {
				return brokers.Unreachable(brokers.ScopeBroker, errors.New("connection reset"))
			}
			return nil
		}}
		r := newRig(t, path, broker, outbox.Policy{Retry: outbox.Retry{BaseDelay: time.Second, MaxDelay: time.Minute}, PollMin: time.Second})
		t.Cleanup(func() { _ = r.db.Close() })
		r.insert("k", "poison")
		for i := range 30 {
			r.insert("", strconv.Itoa(i))
		}
		r.start()
		r.until(2*time.Minute, func() bool { return r.open() == "1" })
		for i := range 100 { // traffic goes on
			r.insert("", strconv.Itoa(100+i))
			time.Sleep(10 * time.Second)
		}
		assert.Equal(t, "abandoned 5", r.status("poison"))
		r.until(time.Minute, func() bool { return r.open() == "0" })
		r.stop()
		assert.Equal(t, "130", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'published'"))
	})
}

// A part of the broker says itself that it is out, while others work: what is for it waits, for as long
// as it lasts, and nothing is charged.
func TestProcessorChargesNothingForAServersOwnWord(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		var healed atomic.Bool
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			if strings.HasPrefix(m.ID, "sick") && !healed.Load() {
				return brokers.Unavailable(brokers.ScopeBroker, errors.New("out of memory"))
			}
			return nil
		}}
		r := newRig(t, path, broker, outbox.Policy{Retry: outbox.Retry{BaseDelay: time.Second, MaxDelay: time.Minute}, PollMin: time.Second})
		t.Cleanup(func() { _ = r.db.Close() })
		r.insert("k", "sick")
		r.insert("k", "sick too")
		for i := range 30 {
			r.insert("", strconv.Itoa(i))
		}
		r.start()
		for i := range 100 { // traffic goes on
			r.insert("", strconv.Itoa(100+i))
			time.Sleep(10 * time.Second)
		}
		assert.Equal(t, "0", r.query("SELECT coalesce(sum(attempts), 0) FROM outbox_messages WHERE status <> 'published'"))
		healed.Store(true)
		r.until(5*time.Minute, func() bool { return r.open() == "0" })
		r.stop()
		assert.Equal(t, "132", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'published'"))
	})
}

// The messages of a key go to two destinations, one of which is unavailable. What is for the other
// one waits for its turn: it passes no message that was given back because its destination may not
// be tried now, or not with so many.
func TestProcessorKeyOfTwoDestinations(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		begin := time.Now()
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			if m.Destination == "down" && time.Since(begin) < time.Minute {
				return brokers.Unavailable(brokers.ScopeDestination, errors.New("no such topic"))
			}
			return nil
		}}
		r := newRig(t, path, broker, outbox.Policy{})
		t.Cleanup(func() { _ = r.db.Close() })
		const keys = 20
		for _, stream := range []string{"down", "up", "down", "up"} {
			for key := range keys {
				n := r.query("SELECT count(*) FROM outbox_messages")
				r.insert(strconv.Itoa(key), n)
				_, err := r.db.ExecContext(t.Context(), "UPDATE outbox_messages SET stream = ? WHERE CAST(payload AS TEXT) = ?", stream, n)
				require.NoError(t, err)
			}
		}
		r.start()
		r.until(time.Hour, func() bool { return r.open() == "0" })
		r.stop()
		last := map[int]int{}
		for _, name := range broker.delivered() {
			n, err := strconv.Atoi(name)
			require.NoError(t, err)
			require.GreaterOrEqual(t, n, last[n%keys], "key %d", n%keys)
			last[n%keys] = n
		}
		assert.Len(t, broker.delivered(), 4*keys, "once each")
	})
}
