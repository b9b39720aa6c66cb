package relay

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
)

// asleep moves the clock on the wall of a time and leaves its monotonic one, as a machine does that
// sleeps.
func asleep(t *testing.T, at time.Time, seconds int) time.Time {
	t.Helper()
	fields := (*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&at))
	require.NotZero(t, fields.wall>>63, "the time has two readings")
	fields.wall += uint64(seconds << 30)
	return at
}

// A lease is over by either clock: a set one cannot stretch it, nor can a machine that was asleep.
func TestLeaseIsOverByEitherClock(t *testing.T) {
	t.Parallel()
	now := time.Now()
	deadline := now.Add(time.Minute)
	assert.False(t, past(deadline, now))
	assert.False(t, past(deadline, now.Add(59*time.Second)))
	assert.True(t, past(deadline, now.Add(time.Minute)))
	assert.False(t, past(deadline, asleep(t, now, 59)))
	assert.True(t, past(deadline, asleep(t, now, 61)))
	assert.True(t, past(deadline, asleep(t, now.Add(time.Minute), -600)), "an operator has set the clock back")
	assert.True(t, past(time.Time{}, now))
}

// A publish that takes longer than the lease is renewed and delivered once.
func TestProcessorRenews(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := &fake{publish: func(ctx context.Context, _ brokers.Message) error {
			time.Sleep(400 * time.Millisecond)
			return ctx.Err()
		}}
		r := newRig(t, path, broker, outbox.Policy{Lease: 3 * time.Second, PublishTimeout: 2900 * time.Millisecond})
		r.fill(6, loose("m"))
		r.start()
		r.drained(time.Minute)
		assert.Len(t, broker.delivered(""), 6)
		assert.Zero(t, r.proc.Stats().LeaseLost)
	})
}

// another process takes rows over.
const takenOver = "UPDATE outbox_messages SET lock_token = 'another', locked_until = locked_until + 3600000000"

// The lease is gone while the broker is slow: the late outcome changes nothing, and the new owner's
// stands.
func TestProcessorLosesItsLease(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		var r *rig
		broker := &fake{publish: func(context.Context, brokers.Message) error { r.exec(takenOver); return nil }}
		observer := &seeing{}
		r = newRig(t, path, broker, outbox.Policy{}, observed(observer))
		r.insert(row{key: "k", name: "1"})
		r.start()
		r.until(time.Minute, func() bool { return r.proc.Stats().LeaseLost == 1 })
		r.stop()
		assert.Equal(t, 1, observer.lost)
		assert.Equal(t, "processing 0", r.status("1"))
		assert.Equal(t, "another", r.query("SELECT lock_token FROM outbox_messages"))
	})
}

// whole is a broker whose calls take long and cannot be taken back.
type whole struct {
	fake

	takes  time.Duration
	begins func(m brokers.Message) // may be nil
}

func (w *whole) Publish(ctx context.Context, messages []brokers.Message) []brokers.Result {
	if w.begins != nil {
		w.begins(messages[0])
	}
	time.Sleep(w.takes)
	return w.fake.Publish(ctx, messages)
}

// slow is a store whose answers come late: the database has done what it was asked for long before.
type slow struct {
	driver.Delivery

	claims, renewals, looks time.Duration // how late they come
	left                    atomic.Int32  // as many renewals work still
}

func (s *slow) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	exchanged, err := s.Delivery.Exchange(ctx, completion, claim)
	time.Sleep(s.claims)
	return exchanged, err
}

func (s *slow) Ready(ctx context.Context, broker string, busy wakeup.Set) (driver.Readiness, error) {
	time.Sleep(s.looks)
	return s.Delivery.Ready(ctx, broker, busy)
}

func (s *slow) Renew(ctx context.Context, lease driver.Lease) (int, error) {
	if s.left.Add(-1) < 0 {
		return 0, errors.New("connection reset")
	}
	kept, err := s.Delivery.Renew(ctx, lease)
	time.Sleep(s.renewals)
	return kept, err
}

// over has a store stand between a processor and its own.
func (s *slow) over(c *ProcessorConfig) { s.Delivery, c.Store = c.Store, s }

// The lease ends in the middle of a batch, since it cannot be renewed: what is with the broker is
// finished and marked, the rest is neither sent nor marked, and goes out later. The log says what
// happened.
func TestFault04LeaseEndsInTheMiddleOfABatch(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		store, broker := &slow{}, &whole{takes: 20 * time.Second}
		policy := outbox.Policy{Workers: 1, Lease: 40 * time.Second, PublishTimeout: 30 * time.Second}
		r := newRig(t, path, broker, policy, store.over)
		r.fill(350, keyed("", 1))
		r.start()
		// 80 % of the lease are 32 s: two calls begin before, and the second one ends after.
		r.until(time.Minute, func() bool { return len(broker.delivered("")) == 2*firstCallSize })
		r.until(5*time.Second, func() bool { return r.count("status = 'published'") > 0 })
		assert.Equal(t, 200, r.count("status = 'published'"), "what was sent is marked")
		assert.Equal(t, 200, r.count("status = 'published' AND id <= 200"), "and nothing else is")
		store.left.Store(1000)
		r.drained(5 * time.Minute)
		r.stop()
		assert.Equal(t, 350, r.count("status = 'published' AND attempts = 1"))
		assert.Equal(t, names("", 350), broker.delivered(""), "once each, in order")
		assert.NotZero(t, r.log.count(`level=WARN msg="lease not renewed" database=test broker=b error="connection reset"`))
	})
}

// The answers to a claim and to a renewal come late. Nothing is sent in the last fifth of the lease,
// which began when the database was asked: by then another process may be about to have the rows.
func TestSlowAnswersDoNotStretchALease(t *testing.T) {
	t.Parallel()
	const lease = 40 * time.Second
	renewals := &slow{renewals: 10 * time.Second}
	renewals.left.Store(1)
	for name, store := range map[string]*slow{"claim": {claims: 10 * time.Second}, "renewal": renewals} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, path string) {
				broker, least := &whole{takes: 6 * time.Second}, lease
				policy := outbox.Policy{Workers: 1, BatchSize: 1000, Lease: lease, PublishTimeout: 30 * time.Second}
				r := newRig(t, path, broker, policy, store.over)
				broker.begins = func(m brokers.Message) {
					until, err := strconv.ParseInt(r.query("SELECT locked_until FROM outbox_messages WHERE message_id = ?", m.ID), 10, 64)
					if assert.NoError(t, err, "sent without a lease") {
						least = min(least, time.Until(time.UnixMicro(until)))
					}
				}
				r.fill(1000, loose(""))
				r.start()
				r.drained(10 * time.Minute)
				r.stop()
				assert.Len(t, broker.delivered(""), 1000, "once each")
				assert.GreaterOrEqual(t, least, lease/5)
				assert.Less(t, least, lease/2, "else the test tests little")
			})
		})
	}
}

// While a call is in progress another process takes over one row of the batch, which has not been
// sent yet. The next renewal notices, and what is left of the batch is not sent: neither that row,
// nor others of its key, which another process has.
func TestPartOfALeaseIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		const rows = 350
		broker := &whole{takes: 20 * time.Second}
		r := newRig(t, path, broker, outbox.Policy{Workers: 1, Lease: 40 * time.Second, PublishTimeout: 30 * time.Second})
		var once sync.Once
		broker.begins = func(brokers.Message) {
			once.Do(func() { r.exec(takenOver + " WHERE CAST(payload AS TEXT) = '200'") })
		}
		r.fill(rows, keyed("", 70))
		r.start()
		r.until(3*time.Minute, func() bool { return len(broker.delivered("")) >= rows-4 })
		r.stop()
		assert.Equal(t, "processing 0", r.status("200"))
		assert.Equal(t, 1, r.count("lock_token = 'another'"))
		for _, name := range []string{"130", "200", "270", "340"} {
			assert.NotContains(t, broker.delivered(""), name, "another process has its key")
		}
		assert.Len(t, broker.delivered(""), rows-4, "once each")
	})
}

// forgetful is a store whose answers to some completions get lost.
type forgetful struct {
	driver.Delivery

	left    atomic.Int64
	written bool // the completions are, all the same
}

func (f *forgetful) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	if completion == nil || f.left.Add(-1) < 0 {
		return f.Delivery.Exchange(ctx, completion, claim)
	}
	if f.written {
		if _, err := f.Delivery.Exchange(ctx, completion, nil); err != nil {
			return driver.Exchanged{}, err
		}
	}
	return driver.Exchanged{}, errors.New("connection reset")
}

// A completion without an answer is repeated until the database answers. Each row is published once, and a
// row that the first try has marked counts as no lost lease.
func TestProcessorRepeatsACompletionOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	for _, written := range []bool{false, true} {
		t.Run(fmt.Sprintf("written=%t", written), func(t *testing.T) {
			inBubble(t, func(t *testing.T, path string) {
				store, broker := &forgetful{written: written}, &fake{}
				store.left.Store(4)
				r := newRig(t, path, broker, outbox.Policy{BatchSize: 10}, func(c *ProcessorConfig) { store.Delivery, c.Store = c.Store, store })
				r.fill(60, keyed("", 7))
				r.start()
				r.drained(time.Minute)
				r.stop()
				assert.Equal(t, 60, r.count("status = 'published' AND attempts = 1"))
				assert.Len(t, broker.delivered(""), 60, "once each")
				requireOrder(t, broker.delivered(""), 7)
				assert.Zero(t, r.proc.Stats().LeaseLost)
				assert.NotZero(t, r.log.count("level=ERROR", "completion failed", "connection reset"))
			})
		})
	}
}

// mortal is the store of a process that dies at one of its completions: before it is written, or
// after that and before the answer comes. From then on nothing of the process reaches the database,
// and its claims stay as they are.
type mortal struct {
	driver.Delivery

	left    atomic.Int64 // completions until then
	written bool         // the last one is
	died    chan struct{}
}

var errDead = errors.New("the process is dead")

func (m *mortal) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	if completion == nil {
		if m.left.Load() <= 0 {
			return driver.Exchanged{}, errDead
		}
		return m.Delivery.Exchange(ctx, nil, claim)
	}
	switch left := m.left.Add(-1); {
	case left > 0:
		return m.Delivery.Exchange(ctx, completion, claim)
	case left == 0:
		if m.written {
			if _, err := m.Delivery.Exchange(ctx, completion, nil); err != nil {
				return driver.Exchanged{}, err
			}
		}
		close(m.died)
	}
	return driver.Exchanged{}, errDead
}

func (m *mortal) Renew(ctx context.Context, lease driver.Lease) (int, error) {
	if m.left.Load() <= 0 {
		return 0, errDead
	}
	return m.Delivery.Renew(ctx, lease)
}

// Where rows go as they are delivered, relays that die at any of their completions lose nothing and
// break no order, and leave nothing behind; what is abandoned stays, and with it the reason.
func TestProcessorKeepsNothing(t *testing.T) {
	testenv.NeedSeconds(t)
	inBubble(t, func(t *testing.T, path string) {
		var mu sync.Mutex
		tries := map[string]int{}
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			mu.Lock()
			defer mu.Unlock()
			tries[m.ID]++
			switch {
			case strings.HasSuffix(m.ID, "33"):
				return brokers.Permanent(errors.New("no"))
			case strings.HasSuffix(m.ID, "7") && tries[m.ID] == 1:
				return brokers.Retryable(errNoLuck)
			}
			return nil
		}}
		const rows, keys, kills = 200, 7, 6
		r := newRig(t, path, broker, outbox.Policy{
			DeletePublished: true, BatchSize: 10, Lease: 10 * time.Second, PublishTimeout: time.Second, Retry: outbox.Retry{BaseDelay: time.Minute},
		})
		r.fill(rows, keyed("", keys))
		for kill := range kills {
			store := &mortal{Delivery: r.store, written: kill%2 == 0, died: make(chan struct{})}
			store.left.Store(int64(1 + kill))
			stop := r.another(func(c *ProcessorConfig) { c.Store = store })
			<-store.died
			stop()
		}
		require.NotZero(t, r.count("status = 'processing'"), "the dead have left claims")
		r.start()
		r.drained(24 * time.Hour)
		r.stop()

		assert.Equal(t, 2, r.count("true"))
		assert.Equal(t, "33,133", r.query("SELECT group_concat(CAST(payload AS TEXT)) FROM outbox_messages WHERE status = 'abandoned' AND last_error LIKE '%permanent%'"))
		assert.Equal(t, "0", r.query("SELECT count(*) FROM outbox_messages_key_blocks"))
		delivered := map[string]bool{}
		for _, name := range broker.delivered("") {
			delivered[name] = true
		}
		assert.Len(t, delivered, rows-2)
		requireOrder(t, broker.delivered(""), keys) // of first deliveries: a completion that was not written makes a copy
		assert.Less(t, len(broker.delivered("")), rows+kills*2*2*10, "few are sent twice: those that a killed relay held")
	})
}
