package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// patient is a policy of relays that poll now and then, and whose retries are not left to chance.
func patient() outbox.Policy {
	return outbox.Policy{PollMin: 30 * time.Second, PollMax: time.Minute, Breaker: outbox.Breaker{MinDelay: 10 * time.Second, MaxDelay: time.Minute}, Retry: outbox.Retry{Jitter: -1}}
}

// refusesAll is a broker that refuses everything, in a way that does not say whose fault it is.
func refusesAll(scope brokers.Scope) *fake {
	return &fake{publish: func(context.Context, brokers.Message) error { return refuses(scope) }}
}

// insertFor writes a row for a stream, to be delivered after a time.
func (r *rig) insertFor(stream, key, name string, in time.Duration) {
	r.t.Helper()
	_, err := r.db.ExecContext(r.t.Context(), `INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, payload, available_at) VALUES (?, 'b', ?, 'T', nullif(?, ''), ?, ?)`,
		uuid.NewString(), stream, key, []byte(name), time.Now().Add(in).UnixMicro())
	require.NoError(r.t, err)
}

// another starts a further relay on the same table.
func (r *rig) another() {
	r.t.Helper()
	proc, err := relay.NewProcessor(relay.ProcessorConfig{
		Database: "test", Broker: "b", Store: r.store, Target: r.broker, Policy: r.policy, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(r.t, err)
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan error, 1)
	go func() { done <- proc.Run(ctx) }()
	r.t.Cleanup(func() { cancel(); require.NoError(r.t, <-done) })
}

// charged counts the open and abandoned rows that have spent attempts.
func (r *rig) charged() string {
	return r.query("SELECT count(*) FROM outbox_messages WHERE attempts > 0 AND status <> 'published'")
}

// Several relays of a table, each with a message of what refuses everything, charge none of them: what
// none of them can see is in the database.
func TestProcessorRefusalOfAllBySeveralRelays(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ relays, messages int }{{2, 2}, {3, 6}} {
		t.Run(fmt.Sprint(test.relays, " relays, ", test.messages, " messages"), func(t *testing.T) {
			forBoth(t, func(t *testing.T, path string, scope brokers.Scope) {
				r := newRig(t, path, refusesAll(scope), patient())
				for i := range test.messages {
					r.insert("", fmt.Sprint(i))
				}
				t.Cleanup(func() { _ = r.db.Close() })
				for range test.relays {
					r.another()
				}
				time.Sleep(4 * time.Hour)
				assert.Equal(t, "0", r.charged())
			})
		})
	}
}

// However far apart tries are, messages that wait together for what refuses everything are not charged.
func TestProcessorRefusalOfAllWithLongPauses(t *testing.T) {
	t.Parallel()
	for _, most := range []time.Duration{15 * time.Minute, 3 * time.Hour} {
		t.Run(most.String(), func(t *testing.T) {
			forBoth(t, func(t *testing.T, path string, scope brokers.Scope) {
				policy := patient()
				policy.Breaker.MaxDelay = most
				r := newRig(t, path, refusesAll(scope), policy)
				t.Cleanup(func() { _ = r.db.Close() })
				for i := range 3 {
					r.insert("", fmt.Sprint(i))
				}
				r.start()
				time.Sleep(24 * time.Hour)
				assert.Equal(t, "0", r.charged())
				r.stop()
			})
		})
	}
}

// One that was charged while it was alone is spared as soon as another one waits, however long its
// retries take.
func TestProcessorRefusalOfOneThatDoesNotStayAlone(t *testing.T) {
	t.Parallel()
	for name, base := range map[string]time.Duration{"default": time.Minute, "an hour": time.Hour} {
		t.Run(name, func(t *testing.T) {
			forBoth(t, func(t *testing.T, path string, scope brokers.Scope) {
				policy := patient()
				policy.Retry.BaseDelay, policy.Retry.MaxDelay = base, time.Hour
				r := start(t, path, refusesAll(scope), policy)
				for i := range 8 {
					r.insert("", fmt.Sprint(i))
					time.Sleep(13 * time.Minute)
				}
				time.Sleep(3 * time.Hour)
				assert.Equal(t, "8", r.open())
				assert.Equal(t, "1", r.charged(), "the first one, before the second one came")
				r.stop()
			})
		})
	}
}

// What waits for other destinations does not keep one that is alone at its own from ending.
func TestProcessorRefusalOfOneAloneAtItsDestination(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			if m.Destination == "s" {
				return refuses(brokers.ScopeDestination)
			}
			return nil
		}}
		policy := patient()
		policy.Retry.MaxAttempts = 3
		r := newRig(t, path, broker, policy)
		t.Cleanup(func() { _ = r.db.Close() })
		for i := range 64 {
			r.insertFor("other", fmt.Sprint("o", i), fmt.Sprint("other", i), 72*time.Hour)
		}
		r.insert("k", "alone")
		r.start()
		r.until(time.Hour, func() bool { return r.status("alone") == "abandoned 3" })
		r.stop()
	})
}

// unsure is a store that does not tell which rows are open while it is broken.
type unsure struct {
	driver.Store

	broken atomic.Bool
}

func (s *unsure) Alone(ctx context.Context, broker, stream string, id int64) (bool, error) {
	if s.broken.Load() {
		return false, errors.New("no answer")
	}
	return s.Store.Alone(ctx, broker, stream, id)
}

// A message is not charged while the database does not tell whether others wait.
func TestProcessorRefusalWhileTheDatabaseDoesNotTell(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		store := &unsure{}
		store.broken.Store(true)
		r, log := surviving(t, path, func(s driver.Store) driver.Store { store.Store = s; return store }, refusesAll(brokers.ScopeBroker), nil)
		r.insert("", "alone")
		r.start()
		time.Sleep(time.Hour)
		assert.Equal(t, "pending 0", r.status("alone"))
		assert.NotEmpty(t, log.with("level=ERROR", "database call failed", "no answer"))
		store.broken.Store(false)
		r.until(time.Hour, func() bool { return r.status("alone") == "abandoned 3" })
		r.stop()
	})
}

// A part of a destination that refuses all that it gets is out, whatever the other parts take: they
// prove nothing. A message that is alone at the destination ends, as everywhere.
func TestProcessorRefusalByAPartition(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			if strings.HasPrefix(m.OrderingKey, "sick") {
				return refuses(brokers.ScopePartition)
			}
			return nil
		}}
		r := start(t, path, broker, outbox.Policy{Workers: 1, PollMin: time.Second, PollMax: 20 * time.Second, Retry: outbox.Retry{Jitter: -1}})
		for i := range 50 {
			r.insert(fmt.Sprint("sick", i), fmt.Sprint("sick", i))
			r.insert(fmt.Sprint("well", i), fmt.Sprint("well", i))
		}
		for i := range 120 {
			r.insert("", fmt.Sprint("more", i))
			time.Sleep(5 * time.Second)
		}
		assert.Equal(t, "0", r.charged())
		assert.Equal(t, "50", r.open())
		assert.Empty(t, r.proc.Stats().UnavailableDestinations)
		_, err := r.db.ExecContext(t.Context(), "DELETE FROM outbox_messages WHERE finished_at IS NULL AND ordering_key <> 'sick7'")
		require.NoError(t, err)
		r.until(time.Hour, func() bool { return r.status("sick7") == "abandoned 5" })
		r.stop()
	})
}

// One that is known to be refused for its own sake, and is then refused by a partition, of which nothing is known,
// ends when it is alone.
func TestProcessorRefusalByAPartitionOfOneThatIsProven(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		var partition atomic.Bool
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			switch {
			case m.ID != "bad":
				return nil
			case partition.Load():
				return refuses(brokers.ScopePartition)
			default:
				return brokers.Refused(brokers.ScopeDestination, brokers.Retryable(errors.New("it hangs up")))
			}
		}}
		r := start(t, path, broker, patient())
		r.insert("k", "bad")
		for i := 0; r.status("bad") == "pending 0" && i < 100; i++ {
			r.insert("", fmt.Sprint("good", i))
			time.Sleep(20 * time.Second)
		}
		assert.Equal(t, "1", r.charged())
		partition.Store(true)
		r.until(2*time.Hour, func() bool { return r.open() == "0" })
		assert.Equal(t, "abandoned 5", r.status("bad"))
		r.stop()
	})
}
