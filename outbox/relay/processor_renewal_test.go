package relay_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// numb is a store that cannot renew.
type numb struct {
	driver.Store

	failing atomic.Bool
}

func (n *numb) Renew(ctx context.Context, lease driver.Lease) (int, error) {
	if n.failing.Load() {
		return 0, errors.New("connection reset")
	}
	return n.Store.Renew(ctx, lease)
}

// whole is a broker whose calls take long and cannot be taken back.
type whole struct {
	fake

	takes  time.Duration
	begins func(m brokers.Message) // may be nil
	mu     sync.Mutex
	calls  []time.Time
}

func (w *whole) Publish(ctx context.Context, messages []brokers.Message) []brokers.Result {
	w.mu.Lock()
	w.calls = append(w.calls, time.Now())
	w.mu.Unlock()
	if w.begins != nil {
		w.begins(messages[0])
	}
	time.Sleep(w.takes)
	return w.fake.Publish(ctx, messages)
}

// The lease ends in the middle of a batch, since it cannot be renewed: what is with the broker is
// finished and marked, the rest is neither sent nor marked, and goes out later. The log says what
// happened.
func TestFault04LeaseEndsInTheMiddleOfABatch(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r := newRig(t, path, memory.New(), outbox.Policy{})
		t.Cleanup(func() { _ = r.db.Close() })
		const rows, chunk = 350, 100
		for i := range rows {
			r.insert("k", strconv.Itoa(i))
		}
		store := &numb{Store: r.store}
		store.failing.Store(true)
		broker := &whole{fake: fake{publish: func(context.Context, brokers.Message) error { return nil }}, takes: 20 * time.Second}
		var log bytes.Buffer // read when the processor has stopped
		proc, err := relay.NewProcessor(relay.ProcessorConfig{
			Database: "test", Broker: "b", Store: store, Target: broker, Log: slog.New(slog.NewTextHandler(&log, nil)),
			Policy: outbox.Policy{Workers: 1, Lease: 40 * time.Second, PublishTimeout: 30 * time.Second},
		})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- proc.Run(ctx) }()
		// 80 % of the lease are 32 s: two calls begin before, and the second one ends after.
		r.until(time.Minute, func() bool { return len(broker.delivered()) == 2*chunk })
		r.until(5*time.Second, func() bool { return r.query("SELECT count(*) FROM outbox_messages WHERE status = 'published'") != "0" })
		assert.Equal(t, "200", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'published'"), "what was sent is marked")
		assert.Equal(t, "200", r.query("SELECT max(CAST(CAST(payload AS TEXT) AS INTEGER)) + 1 FROM outbox_messages WHERE status = 'published'"), "and nothing else is")
		store.failing.Store(false)
		r.until(5*time.Minute, func() bool { return r.open() == "0" })
		stop()
		require.NoError(t, <-done)
		assert.Equal(t, "350", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'published' AND attempts = 1"))
		delivered := broker.delivered()
		require.Len(t, delivered, rows, "once each")
		for i, name := range delivered {
			require.Equal(t, strconv.Itoa(i), name, "in order")
		}
		assert.Contains(t, log.String(), `level=WARN msg="lease not renewed" database=test broker=b error="connection reset"`)
	})
}

// slow is a store whose answers come late: the database has done what it was asked for long before.
type slow struct {
	driver.Store

	claims, renewals time.Duration // how late they come
	left             atomic.Int32  // as many renewals work still
}

func (s *slow) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	exchanged, err := s.Store.Exchange(ctx, completion, claim)
	time.Sleep(s.claims)
	return exchanged, err
}

func (s *slow) Renew(ctx context.Context, lease driver.Lease) (int, error) {
	if s.left.Add(-1) < 0 {
		return 0, errors.New("connection reset")
	}
	kept, err := s.Store.Renew(ctx, lease)
	time.Sleep(s.renewals)
	return kept, err
}

// The answers to a claim and to a renewal come late. Nothing is sent in the last fifth of the lease
// all the same, which began when the database was asked: by then another process may be about to
// have the rows.
func TestSlowAnswersDoNotStretchALease(t *testing.T) {
	t.Parallel()
	for name, renews := range map[string]bool{"claim": false, "renewal": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, path string) {
				const lease = 40 * time.Second
				r := newRig(t, path, memory.New(), outbox.Policy{})
				t.Cleanup(func() { _ = r.db.Close() })
				for i := range 1000 {
					r.insert("", strconv.Itoa(i))
				}
				store := &slow{Store: r.store, claims: 10 * time.Second}
				if renews {
					store.claims, store.renewals = 0, 10*time.Second
					store.left.Store(1)
				}
				var least atomic.Int64
				least.Store(int64(lease))
				broker := &whole{fake: fake{publish: func(context.Context, brokers.Message) error { return nil }}, takes: 6 * time.Second}
				broker.begins = func(m brokers.Message) {
					until, err := strconv.ParseInt(r.query("SELECT locked_until FROM outbox_messages WHERE message_id = ?", m.ID), 10, 64)
					if assert.NoError(t, err, "sent without a lease") {
						least.Store(min(least.Load(), int64(time.Until(time.UnixMicro(until)))))
					}
				}
				proc, err := relay.NewProcessor(relay.ProcessorConfig{
					Database: "test", Broker: "b", Store: store, Target: broker, Log: slog.New(slog.DiscardHandler),
					Policy: outbox.Policy{Workers: 1, BatchSize: 1000, Lease: lease, PublishTimeout: 30 * time.Second},
				})
				require.NoError(t, err)
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- proc.Run(ctx) }()
				r.until(10*time.Minute, func() bool { return r.open() == "0" })
				stop()
				require.NoError(t, <-done)
				assert.Len(t, broker.delivered(), 1000, "once each")
				assert.GreaterOrEqual(t, time.Duration(least.Load()), lease/5)
				assert.Less(t, time.Duration(least.Load()), lease/2, "else the test tests little")
			})
		})
	}
}

// While a call is in progress another process takes over one row of the batch, which has not been
// sent yet. The next renewal notices, and what is left of the batch is not sent: neither that row,
// nor others of its key, which is in the other's hands.
func TestPartOfALeaseIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r := newRig(t, path, memory.New(), outbox.Policy{})
		t.Cleanup(func() { _ = r.db.Close() })
		const rows = 350
		for i := range rows {
			r.insert("k"+strconv.Itoa(i%70), strconv.Itoa(i))
		}
		broker := &whole{fake: fake{publish: func(context.Context, brokers.Message) error { return nil }}, takes: 20 * time.Second}
		var once sync.Once
		broker.begins = func(brokers.Message) {
			once.Do(func() {
				_, err := r.db.ExecContext(t.Context(), `UPDATE outbox_messages SET lock_token = 'another', locked_until = locked_until + 3600000000
					WHERE CAST(payload AS TEXT) = '200'`)
				assert.NoError(t, err)
			})
		}
		proc, err := relay.NewProcessor(relay.ProcessorConfig{
			Database: "test", Broker: "b", Store: r.store, Target: broker, Log: slog.New(slog.DiscardHandler),
			Policy: outbox.Policy{Workers: 1, Lease: 40 * time.Second, PublishTimeout: 30 * time.Second},
		})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- proc.Run(ctx) }()
		r.until(3*time.Minute, func() bool { return len(broker.delivered()) >= rows-4 })
		stop()
		require.NoError(t, <-done)
		assert.Equal(t, "processing 0", r.status("200"))
		assert.Equal(t, "another", r.query("SELECT lock_token FROM outbox_messages WHERE CAST(payload AS TEXT) = '200'"))
		for _, name := range []string{"130", "200", "270", "340"} {
			assert.NotContains(t, broker.delivered(), name, "its key is in another one's hands")
		}
		assert.Len(t, broker.delivered(), rows-4, "once each")
	})
}

// What was abandoned stays so when more attempts are allowed afterwards; what still waits gets
// them.
func TestFault26TheDeadStayDead(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		refuses := &fake{publish: func(context.Context, brokers.Message) error { return brokers.Retryable(errors.New("no luck")) }}
		r := start(t, path, refuses, outbox.Policy{Retry: outbox.Retry{MaxAttempts: 2, BaseDelay: time.Minute, Jitter: -1}})
		r.insert("a", "dead")
		r.until(time.Hour, func() bool { return r.status("dead") == "abandoned 2" })
		r.insert("b", "waiting")
		r.until(time.Minute, func() bool { return r.status("waiting") == "failed 1" })
		r.stop()
		before := r.query("SELECT finished_at || ' ' || last_error FROM outbox_messages WHERE CAST(payload AS TEXT) = 'dead'")

		again := newRig(t, path, refuses, outbox.Policy{Retry: outbox.Retry{MaxAttempts: 4, BaseDelay: time.Minute, Jitter: -1}})
		t.Cleanup(func() { _ = again.db.Close() })
		again.start()
		again.until(48*time.Hour, func() bool { return again.open() == "0" })
		again.stop()
		assert.Equal(t, "abandoned 2", again.status("dead"))
		assert.Equal(t, before, again.query("SELECT finished_at || ' ' || last_error FROM outbox_messages WHERE CAST(payload AS TEXT) = 'dead'"), "nobody has touched it")
		assert.Equal(t, "abandoned 4", again.status("waiting"))
	})
}
