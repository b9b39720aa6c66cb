package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
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

// panicky is a store of which claims and polls panic as long as it is broken.
type panicky struct {
	driver.Store

	broken atomic.Bool
}

func (s *panicky) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	if s.broken.Load() && claim != nil {
		panic("a row that nobody expected")
	}
	return s.Store.Exchange(ctx, completion, claim)
}

func (s *panicky) Ready(ctx context.Context, broker string, busy wakeup.Set) (driver.Readiness, error) {
	if s.broken.Load() && time.Now().Second()%2 == 0 { // each second time it gets as far as the claim
		panic("an answer that nobody expected")
	}
	return s.Store.Ready(ctx, broker, busy)
}

// surviving is a processor with another store, an observer, and its log.
func surviving(t *testing.T, path string, store func(driver.Store) driver.Store, broker brokers.Broker, observer relay.Observer) (*rig, *lines) {
	t.Helper()
	policy := outbox.Policy{PollMin: 10 * time.Second, PollMax: time.Minute, Retry: outbox.Retry{MaxAttempts: 3}}
	r, log := newRig(t, path, broker, policy), &lines{}
	t.Cleanup(func() { _ = r.db.Close() })
	var err error
	r.proc, err = relay.NewProcessor(relay.ProcessorConfig{
		Database: "test", Broker: "b", Store: store(r.store), Target: broker, Policy: policy, Observer: observer, Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	require.NoError(t, err)
	return r, log
}

// A panic while the relay polls or claims is logged, with its stack and not with each try, and what
// waits is delivered when it is over.
func TestProcessorSurvivesPanics(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		store := &panicky{}
		store.broken.Store(true)
		r, log := surviving(t, path, func(s driver.Store) driver.Store { store.Store = s; return store }, memory.New(), nil)
		r.insert("k", "waits")
		r.start()
		time.Sleep(time.Hour)
		for _, what := range []string{"a row that nobody expected", "an answer that nobody expected"} {
			assert.NotEmpty(t, log.with("level=ERROR", "panic survived", what, "survive_test.go"), "%s", what)
		}
		assert.LessOrEqual(t, len(log.with("panic survived")), 61, "once a minute")
		store.broken.Store(false)
		r.until(time.Hour, func() bool { return r.open() == "0" })
		r.stop()
		assert.Equal(t, "published 1", r.status("waits"))
	})
}

// squeamish is an observer that panics at one message, before it is sent.
type squeamish struct{ relay.ProcessorObserver }

func (p squeamish) Observe(string, string) relay.ProcessorObserver { return p }
func (squeamish) Claimed(context.Context, int, time.Duration)      {}
func (squeamish) Published(context.Context, *relay.Call)           {}
func (squeamish) Completing(context.Context, *driver.Completion)   {}
func (squeamish) LeaseLost(context.Context, int)                   {}
func (squeamish) Publishing(ctx context.Context, call *relay.Call) context.Context {
	for _, m := range call.Messages {
		if string(m.Payload) == "poison" {
			panic("poison")
		}
	}
	return ctx
}

// A message at which the relay panics costs itself: it is found, alone, as if it had crashed the
// process, and abandoned; all others are delivered, those of its key after it.
func TestProcessorIsolatesTheRowOfAPanic(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := &fake{publish: func(context.Context, brokers.Message) error { return nil }}
		r, log := surviving(t, path, func(s driver.Store) driver.Store { return s }, broker, squeamish{})
		var want []string
		for i := range 300 {
			name := fmt.Sprintf("m%03d", i)
			if i == 111 {
				r.insert("key-4", "poison")
			}
			r.insert(fmt.Sprintf("key-%d", i%97), name)
			want = append(want, name)
		}
		r.start()
		r.until(24*time.Hour, func() bool { return r.open() == "0" })
		r.stop()
		assert.Equal(t, "abandoned 3", r.status("poison"))
		assert.Contains(t, r.query("SELECT last_error FROM outbox_messages WHERE status = 'abandoned'"), outbox.ClassCrashed)
		got := broker.delivered()
		slices.Sort(got)
		assert.Equal(t, want, slices.Compact(got))
		assert.NotEmpty(t, log.with("panic survived", "poison"))
		assert.Equal(t, "1", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'abandoned'"))
	})
}
