package relay_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// seeing keeps what it is told.
type seeing struct {
	database, broker string

	mu                          sync.Mutex
	claimed, lost               int
	sent                        []string
	acknowledged, failed, asked int
	ages                        []time.Duration
	fates                       map[string]int
	attempts                    []int
}

type seenKey struct{}

func (s *seeing) Observe(database, broker string) relay.ProcessorObserver {
	s.database, s.broker, s.fates = database, broker, map[string]int{}
	return s
}

func (s *seeing) Claimed(_ context.Context, rows int, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claimed += rows
	if took < 0 {
		s.claimed = -1
	}
}

func (s *seeing) Publishing(ctx context.Context, call *relay.Call) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	for i := range call.Messages {
		s.sent = append(s.sent, string(call.Outgoing[i].Payload))
	}
	return context.WithValue(ctx, seenKey{}, "seen")
}

func (s *seeing) Published(ctx context.Context, call *relay.Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Value(seenKey{}) != "seen" || len(call.Results) != len(call.Messages) {
		s.asked = -1
	}
	for i := range call.Results {
		if call.Results[i].Err != nil {
			s.failed++
			continue
		}
		s.acknowledged++
		s.ages = append(s.ages, call.Age(i))
	}
}

func (s *seeing) Completing(_ context.Context, completion *driver.Completion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fates["published"] += len(completion.Published)
	for _, outcome := range completion.Other {
		s.fates[string(outcome.Status)]++
		if outcome.Spent {
			s.attempts = append(s.attempts, outcome.Attempts)
		}
	}
}

func (s *seeing) LeaseLost(_ context.Context, rows int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost += rows
}

func observed(t *testing.T, path string, broker brokers.Broker, policy outbox.Policy, observer relay.Observer) *rig {
	t.Helper()
	r := newRig(t, path, broker, policy)
	t.Cleanup(func() { _ = r.db.Close() })
	var err error
	r.proc, err = relay.NewProcessor(relay.ProcessorConfig{Database: "test", Broker: "b", Store: r.store, Target: broker, Policy: policy, Observer: observer})
	require.NoError(t, err)
	return r
}

func TestObserver(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		clients := map[string]bool{}
		broker := &fake{publish: func(ctx context.Context, m brokers.Message) error {
			clients[m.ID] = ctx.Value(seenKey{}) == "seen"
			time.Sleep(time.Second) // with the broker
			if m.ID == "bad" {
				return brokers.Retryable(errors.New("no luck"))
			}
			return nil
		}}
		first, second := &seeing{}, &seeing{}
		r := observed(t, path, broker, outbox.Policy{Retry: outbox.Retry{MaxAttempts: 2, BaseDelay: time.Minute, Jitter: -1}}, relay.Observers(first, nil, second))
		r.insert("k", "bad")
		r.insert("k", "follower")
		r.insert("other", "good")
		_, err := r.db.ExecContext(t.Context(), "UPDATE outbox_messages SET created_at = ?", time.Now().Add(-10*time.Second).UnixMicro())
		require.NoError(t, err)
		r.start()
		r.until(time.Hour, func() bool { return r.open() == "0" })
		r.stop()
		stats := r.proc.Stats()
		for _, s := range []*seeing{first, second} {
			assert.Equal(t, "test b", s.database+" "+s.broker)
			assert.EqualValues(t, stats.Claimed, s.claimed)
			assert.ElementsMatch(t, []string{"bad", "good", "bad", "follower"}, distinct(s.sent, "follower"))
			assert.Equal(t, 2, s.acknowledged)
			assert.GreaterOrEqual(t, s.failed, 2)
			assert.Equal(t, map[string]int{"published": 2, "failed": 1, "abandoned": 1}, without(s.fates, "pending"))
			assert.Equal(t, []int{1, 2}, s.attempts)
			require.Len(t, s.ages, 2)
			assert.GreaterOrEqual(t, s.ages[0], 11*time.Second, "until the broker has acknowledged it")
			assert.Less(t, s.ages[0], 14*time.Second)
			assert.Zero(t, s.lost)
		}
		assert.Equal(t, map[string]bool{"bad": true, "good": true, "follower": true}, clients, "the context goes to the broker's client")
		assert.Zero(t, stats.Leases)
	})
}

// distinct drops all but the last of the repetitions of one name.
func distinct(names []string, name string) (list []string) {
	seen := false
	for _, n := range names {
		if n != name || !seen {
			list = append(list, n)
		}
		seen = seen || n == name
	}
	return list
}

func without(m map[string]int, key string) map[string]int {
	delete(m, key)
	return m
}

func TestObserverOfALostLease(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		s := &seeing{}
		var r *rig
		broker := &fake{publish: func(ctx context.Context, _ brokers.Message) error {
			_, err := r.db.ExecContext(context.WithoutCancel(ctx), "UPDATE outbox_messages SET lock_token = randomblob(16) WHERE lock_token IS NOT NULL")
			return err
		}}
		r = observed(t, path, broker, outbox.Policy{Lease: time.Minute}, s)
		r.insert("", "stolen")
		r.start()
		synctest.Wait()
		r.until(time.Minute, func() bool { return r.proc.Stats().LeaseLost == 1 })
		r.stop()
		assert.Equal(t, 1, s.lost)
	})
}

// TestObserversAreNone: an observer that watches nobody costs nothing.
func TestObserversAreNone(t *testing.T) {
	t.Parallel()
	assert.Nil(t, relay.Observers())
	assert.Nil(t, relay.Observers(nil, nil))
	assert.Nil(t, relay.Observers(blind{}, blind{}).Observe("d", "b"))
}

type blind struct{}

func (blind) Observe(string, string) relay.ProcessorObserver { return nil }

// The age of a message is that of the database's clock, and never negative.
func TestObserverKnowsTheDatabasesClock(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ahead, doubt time.Duration // of the database
		created      time.Duration // by the database's clock, before it shows 0
		want         time.Duration
	}{
		"together":       {0, 0, 3 * time.Second, 3 * time.Second},
		"database ahead": {time.Hour, time.Millisecond, 3 * time.Second, 3 * time.Second},
		"behind":         {-time.Hour, time.Millisecond, 3 * time.Second, 3 * time.Second},
		"in doubt":       {time.Millisecond, 2 * time.Millisecond, time.Second, time.Second - time.Millisecond},
		"future":         {0, 0, -time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var ages []time.Duration
				store := &skewed{ahead: c.ahead, doubt: c.doubt, created: c.created}
				observer := &agesOnly{ages: &ages}
				engine, err := relay.NewEngine(relay.EngineConfig{
					Stores: map[string]driver.Delivery{"d": store}, Observer: observer,
					Brokers: map[string]relay.Target{"b": {Broker: taker{}, Policy: outbox.Policy{PollMin: time.Second}}},
				})
				require.NoError(t, err)
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- engine.Run(ctx) }()
				time.Sleep(10 * time.Second)
				stop()
				require.NoError(t, <-ended)
				require.Equal(t, []time.Duration{c.want}, ages)
			})
		})
	}
}

// skewed is a store with one row, and with a clock of its own.
type skewed struct {
	driver.Delivery // nothing else of it is called

	ahead, doubt, created time.Duration

	mu    sync.Mutex
	given bool
	asked bool
}

func (s *skewed) Diagnose(context.Context) (d admin.Diagnosis, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = true
	d.ClockOffset, d.ClockError = s.ahead, s.doubt
	return d, nil
}

func (s *skewed) Exchange(_ context.Context, completion *driver.Completion, claim *driver.Claim) (e driver.Exchanged, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if completion != nil {
		e.Completed = &driver.Completed{}
	}
	if claim != nil && !s.given && s.asked {
		s.given = true
		e.Batch.Messages = []driver.Message{{
			ID: 1, MessageID: "1", Stream: "s", Type: "T", ContentType: "application/json", CreatedAt: time.Now().Add(s.ahead - s.created),
		}}
	}
	return e, nil
}

func (s *skewed) Ready(context.Context, string, wakeup.Set) (driver.Readiness, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked { // the row comes when the clocks have been compared
		return driver.Readiness{}, nil
	}
	return driver.Readiness{Shards: []int{0}}, nil
}
func (s *skewed) Renew(context.Context, driver.Lease) (int, error)  { return 1, nil }
func (s *skewed) Defer(context.Context, *driver.Claim) (int, error) { return 0, nil }
func (s *skewed) Shards() int                                       { return 1 }

func (*skewed) Backlog(context.Context) ([]admin.Backlog, error) { return nil, nil }
func (*skewed) Heartbeat(context.Context, admin.Instance) error  { return nil }
func (*skewed) Leave(context.Context, uuid.UUID) error           { return nil }
func (*skewed) Watch(context.Context) ([]admin.Finding, error)   { return nil, nil }
func (*skewed) Stranded(context.Context, string, admin.Position, int) (admin.List, error) {
	return admin.List{}, nil
}

type agesOnly struct {
	seeing

	ages *[]time.Duration
}

func (a *agesOnly) Observe(string, string) relay.ProcessorObserver {
	a.fates = map[string]int{}
	return a
}

func (a *agesOnly) Published(_ context.Context, call *relay.Call) {
	*a.ages = append(*a.ages, call.Age(0))
}
