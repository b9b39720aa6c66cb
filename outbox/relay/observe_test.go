package relay

import (
	"context"
	"encoding/base64"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/brokers/signature"
	"github.com/gorm-fanout/fanout/internal/store/driver"
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

// skewed is a store whose clock differs from ours.
type skewed struct {
	stub

	ahead, doubt time.Duration
}

func (s skewed) Diagnose(context.Context) (admin.Diagnosis, error) {
	return admin.Diagnosis{ClockOffset: s.ahead, ClockError: s.doubt}, nil
}

// The age of a message is that of the database's clock, and never negative. An engine compares the
// clocks where an observer asks for ages.
func TestObserverKnowsTheDatabasesClock(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ahead, doubt time.Duration // of the database
		created      time.Duration // before the call ended, by the database's clock
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
			config := EngineConfig{
				Stores: map[string]driver.Delivery{"d": skewed{ahead: c.ahead, doubt: c.doubt}}, Brokers: map[string]Target{"b": {Broker: taker{}}}, Observer: &seeing{},
			}
			engine, err := NewEngine(config)
			require.NoError(t, err)
			engine.clocks[0].look(t.Context())
			began := time.Now()
			m := message(1)
			m.CreatedAt = began.Add(time.Second + c.ahead - c.created)
			call := Call{Messages: []*driver.Message{&m}, Began: began, Took: time.Second, clock: engine.processors[0].clock}
			assert.Equal(t, c.want, call.Age(0))
		})
	}
}

// signingKeys are one key of Ed25519, of the producer and of a partner.
func signingKeys(t *testing.T) *signature.Keys {
	t.Helper()
	keys := new(signature.Keys)
	require.NoError(t, keys.Add("2026-11", "whsk_"+base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))))
	return keys
}

// Each attempt of each message is signed when it is made, one that is repeated alone included, whatever
// the row says; and the row says nothing of it.
func TestProcessorSigns(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		keys := signingKeys(t)
		began := time.Now()
		var attempts []time.Duration
		broker := memory.New()
		broker.Fail = func(m brokers.Message) error {
			attributes := map[string]string{}
			for name, value := range m.Fields {
				assert.NotContains(t, attributes, name, "each field once")
				attributes[name] = value
			}
			signed, err := keys.Verify("s", attributes, m.Payload)
			assert.NoError(t, err)
			if string(m.Payload) == "late" {
				attempts = append(attempts, signed.Sub(began).Round(time.Minute))
				if len(attempts) < 3 {
					return brokers.Retryable(assert.AnError)
				}
			}
			return nil
		}
		policy := outbox.Policy{Retry: outbox.Retry{BaseDelay: 2 * time.Minute, MaxDelay: 2 * time.Minute, Jitter: -1}}
		r := newRig(t, path, broker, policy, func(c *ProcessorConfig) { c.Sign = keys })
		r.insert(row{key: "k", name: "late"}, row{name: "forged", headers: `{"a":"1","signature":"forged"}`})
		r.fill(20, loose("other"))
		r.start()
		r.drained(20 * time.Minute)
		assert.Equal(t, []time.Duration{0, 2 * time.Minute, 4 * time.Minute}, attempts)
		assert.Len(t, broker.Messages("s"), 22)
		assert.Zero(t, r.count("headers LIKE '%v1a%' OR last_error LIKE '%v1a%'"))
	})
}

// A processor that could not sign is not made.
func TestProcessorNeedsKeysThatSign(t *testing.T) {
	t.Parallel()
	public := new(signature.Keys)
	require.NoError(t, public.Add("2026-11", "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="))
	for want, keys := range map[string]*signature.Keys{
		`broker "b": signature: key "2026-11": it is public`:           public,
		`broker "b": signature: there are 0 keys to sign with: give 1`: new(signature.Keys),
	} {
		_, err := NewEngine(EngineConfig{
			Stores: map[string]driver.Delivery{"test": stub{}}, Brokers: map[string]Target{"b": {Broker: taker{}, Sign: keys}},
		})
		require.ErrorContains(t, err, want)
	}
}
