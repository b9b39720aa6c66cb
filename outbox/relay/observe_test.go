package relay

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// seeing keeps what it is told.
type seeing struct {
	database, broker string
	publishing       func(call *Call) // may be nil

	mu            sync.Mutex
	claimed, lost int
	sent          map[string]int
	acknowledged  int
	failed        int
	ages          []time.Duration
	fates         map[string]int
	attempts      []int
}

type seenKey struct{}

// observed has a processor watched.
func observed(observer Observer) func(*ProcessorConfig) {
	return func(c *ProcessorConfig) { c.Observer = observer }
}

func (s *seeing) Observe(database, broker string) ProcessorObserver {
	s.database, s.broker, s.fates, s.sent = database, broker, map[string]int{}, map[string]int{}
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

func (s *seeing) Publishing(ctx context.Context, call *Call) context.Context {
	if s.publishing != nil {
		s.publishing(call)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range call.Messages {
		s.sent[string(call.Outgoing[i].Payload)]++
	}
	return context.WithValue(ctx, seenKey{}, "seen")
}

func (s *seeing) Published(ctx context.Context, call *Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Value(seenKey{}) != "seen" || len(call.Results) != len(call.Messages) {
		s.failed = -1000
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

func TestObserver(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		clients := map[string]bool{}
		broker := &fake{publish: func(ctx context.Context, m brokers.Message) error {
			clients[m.ID] = ctx.Value(seenKey{}) == "seen"
			time.Sleep(time.Second) // with the broker
			if m.ID == "bad" {
				return brokers.Retryable(errNoLuck)
			}
			return nil
		}}
		first, second := &seeing{}, &seeing{}
		policy := outbox.Policy{Retry: outbox.Retry{MaxAttempts: 2, BaseDelay: time.Minute, Jitter: -1}}
		r := newRig(t, path, broker, policy, observed(Observers(first, nil, second)))
		r.insert(row{key: "k", name: "bad"}, row{key: "k", name: "follower"}, row{key: "other", name: "good"})
		r.exec("UPDATE outbox_messages SET created_at = ?", time.Now().Add(-10*time.Second).UnixMicro())
		r.start()
		r.drained(time.Hour)
		r.stop()
		stats := r.proc.Stats()
		for _, s := range []*seeing{first, second} {
			assert.Equal(t, "test b", s.database+" "+s.broker)
			assert.EqualValues(t, stats.Claimed, s.claimed)
			assert.Equal(t, 2, s.sent["bad"])
			assert.Equal(t, 1, s.sent["good"])
			assert.Positive(t, s.sent["follower"], "and once more for each time that it is not sent")
			assert.Equal(t, 2, s.acknowledged)
			assert.GreaterOrEqual(t, s.failed, 2)
			delete(s.fates, "pending")
			assert.Equal(t, map[string]int{"published": 2, "failed": 1, "abandoned": 1}, s.fates)
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

// skewed is a store with one row, and with a clock of its own.
type skewed struct {
	stub

	ahead, doubt, created time.Duration

	mu           sync.Mutex
	given, asked bool
}

func (s *skewed) Diagnose(context.Context) (d admin.Diagnosis, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = true
	d.ClockOffset, d.ClockError = s.ahead, s.doubt
	return d, nil
}

func (s *skewed) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.stub.Exchange(ctx, completion, claim)
	if claim != nil && !s.given && s.asked {
		s.given = true
		m := message(1)
		m.CreatedAt = time.Now().Add(s.ahead - s.created)
		e.Batch.Messages = []driver.Message{m}
	}
	return e, err
}

func (s *skewed) Ready(context.Context, string, wakeup.Set) (driver.Readiness, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked { // the row comes when the clocks have been compared
		return driver.Readiness{}, nil
	}
	return driver.Readiness{Shards: []int{0}}, nil
}

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
				observer := &seeing{}
				engine, err := NewEngine(EngineConfig{
					Stores:   map[string]driver.Delivery{"d": &skewed{ahead: c.ahead, doubt: c.doubt, created: c.created}},
					Observer: observer, Brokers: map[string]Target{"b": {Broker: taker{}, Policy: outbox.Policy{PollMin: time.Second}}},
				})
				require.NoError(t, err)
				stop := running(t, engine.Run)
				time.Sleep(10 * time.Second)
				stop()
				require.Equal(t, []time.Duration{c.want}, observer.ages)
			})
		})
	}
}
