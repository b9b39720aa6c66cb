package relay_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// looks counts how often a processor asks which shards have work, and notes the shards that it
// claims from.
type looks struct {
	driver.Store
	count  atomic.Int64
	claims [outbox.Classes]atomic.Int64
	after  func(*driver.Claim)
}

func (l *looks) Ready(ctx context.Context, broker string, busy wakeup.Set) (driver.Readiness, error) {
	l.count.Add(1)
	return l.Store.Ready(ctx, broker, busy)
}

func (l *looks) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	if claim != nil {
		l.claims[claim.Shard].Add(1)
	}
	exchanged, err := l.Store.Exchange(ctx, completion, claim)
	if l.after != nil {
		l.after(claim)
	}
	return exchanged, err
}

// startWatched starts a processor that polls so seldom that only wake-ups make it deliver.
func startWatched(t *testing.T, path string, broker brokers.Broker) (*rig, *looks) {
	t.Helper()
	r := newRig(t, path, broker, outbox.Policy{PollMin: time.Hour, PollMax: time.Hour})
	watched := &looks{Store: r.store}
	var err error
	r.proc, err = relay.NewProcessor(relay.ProcessorConfig{
		Database: "test", Broker: "b", Store: watched, Target: broker, Policy: outbox.Policy{PollMin: time.Hour, PollMax: time.Hour},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.db.Close() })
	r.start()
	time.Sleep(time.Second) // the look at the start, and the claims from all shards
	synctest.Wait()
	watched.count.Store(0)
	for i := range watched.claims {
		watched.claims[i].Store(0)
	}
	return r, watched
}

// A wake-up that names a shard leads to claims from that shard, and to nothing else.
func TestWakeNamesShards(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r, watched := startWatched(t, path, memory.New())
		r.insert("k", "1")
		r.proc.Wake(wakeup.SetOf(0))
		synctest.Wait()
		assert.Equal(t, "published 1", r.status("1"))
		assert.Zero(t, watched.count.Load(), "no look")
		assert.EqualValues(t, 2, watched.claims[0].Load(), "the row, and then nothing more")
		assert.Zero(t, watched.claims[1].Load()+watched.claims[2].Load())

		r.insert("k", "2")
		r.proc.Wake(wakeup.SetOf(1)) // a wrong shard
		synctest.Wait()
		assert.Equal(t, "pending 0", r.status("2"), "waits for the poll")
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		assert.Equal(t, "published 1", r.status("2"), "which is the guarantee")

		for i, shards := range []wakeup.Set{wakeup.Unknown, wakeup.SetOf(0, 3), wakeup.SetOf(17)} {
			name := string(rune('a' + i))
			r.insert("k", name)
			looked := watched.count.Load()
			r.proc.Wake(shards)
			synctest.Wait()
			assert.Equal(t, "published 1", r.status(name), "shards that the store does not have are looked up")
			assert.Equal(t, looked+1, watched.count.Load())
		}
		r.stop()
	})
}

// A wake-up that comes while its shard is being claimed from or completed is not lost, and waits
// for no poll.
func TestWakeDuringAnExchange(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r, watched := startWatched(t, path, memory.New())
		names := []string{"2", "3", "4"}
		watched.after = func(*driver.Claim) { // the claim did not see what comes now
			if len(names) > 0 {
				r.insert("k", names[0])
				names = names[1:]
				r.proc.Wake(wakeup.SetOf(0))
			}
		}
		r.insert("k", "1")
		r.proc.Wake(wakeup.SetOf(0))
		synctest.Wait()
		assert.Equal(t, "0", r.open())
		assert.Zero(t, watched.count.Load())
		r.stop()
	})
}

// Whatever a wake-up names, nothing is claimed for a broker that is paused.
func TestWakeOfAPausedBroker(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r, watched := startWatched(t, path, memory.New())
		_, err := r.store.Pause(t.Context(), admin.Pause{Broker: "b"})
		require.NoError(t, err)
		r.proc.Wake(wakeup.Unknown)
		synctest.Wait()
		r.insert("k", "1")
		r.proc.Wake(wakeup.SetOf(0))
		synctest.Wait()
		assert.Equal(t, "pending 0", r.status("1"))
		assert.Zero(t, watched.claims[0].Load())
		_, err = r.store.Resume(t.Context(), "b")
		require.NoError(t, err)
		r.proc.Wake(wakeup.Unknown)
		synctest.Wait()
		assert.Equal(t, "published 1", r.status("1"))
		r.stop()
	})
}

// An engine says whether it delivers the rows of a wake-up; if not, other processes must be
// notified.
func TestEngineWakeServes(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r := newRig(t, path, memory.New(), outbox.Policy{})
		t.Cleanup(func() { _ = r.db.Close() })
		engine, err := relay.NewEngine(relay.EngineConfig{
			Stores: map[string]driver.Delivery{"d": r.store}, Brokers: map[string]relay.Target{"a": {Broker: memory.New()}, "b": {Broker: memory.New()}},
			Log: slog.New(slog.DiscardHandler),
		})
		require.NoError(t, err)
		a, b, c := wakeup.WakeUp{Broker: "a", Shards: 1}, wakeup.WakeUp{Broker: "b"}, wakeup.WakeUp{Broker: "c"}
		assert.False(t, engine.Wake("d", a), "it does not run yet")
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- engine.Run(ctx) }()
		synctest.Wait()
		assert.True(t, engine.Wake("d", a, b))
		assert.True(t, engine.Wake("d"))
		assert.False(t, engine.Wake("d", a, c), "of one broker it knows nothing")
		assert.False(t, engine.Wake("e", a))
		assert.False(t, engine.Wake("e"))
		stop()
		require.NoError(t, <-done)
		assert.False(t, engine.Wake("d", a), "it has stopped")
	})
}
