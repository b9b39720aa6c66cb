package relay

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// looks counts how often a processor asks which shards have work, and notes the shards that it
// claims from.
type looks struct {
	driver.Delivery
	count  atomic.Int64
	claims [outbox.Classes]atomic.Int64
	after  func() // a claim that found nothing
}

func (l *looks) Ready(ctx context.Context, broker string, busy wakeup.Set) (driver.Readiness, error) {
	l.count.Add(1)
	return l.Delivery.Ready(ctx, broker, busy)
}

func (l *looks) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	if claim != nil {
		l.claims[claim.Shard].Add(1)
	}
	exchanged, err := l.Delivery.Exchange(ctx, completion, claim)
	if l.after != nil && claim != nil && len(exchanged.Batch.Messages) == 0 {
		l.after()
	}
	return exchanged, err
}

// startWatched starts a processor that polls so seldom that only wake-ups make it deliver.
func startWatched(t *testing.T, path string) (*rig, *looks) {
	t.Helper()
	watched := &looks{}
	r := start(t, path, &fake{}, outbox.Policy{PollMin: time.Hour, PollMax: time.Hour}, func(c *ProcessorConfig) { watched.Delivery, c.Store = c.Store, watched })
	time.Sleep(time.Second) // the look at the start, and the claims from all shards
	synctest.Wait()
	watched.count.Store(0)
	for i := range watched.claims {
		watched.claims[i].Store(0)
	}
	return r, watched
}

// wakes inserts a row, wakes the processor, and returns what has become of the row then.
func (r *rig) wakes(name string, shards wakeup.Set) (status string) {
	r.t.Helper()
	r.insert(row{key: "k", name: name})
	r.proc.Wake(shards)
	synctest.Wait()
	return r.status(name)
}

// A wake-up that names a shard leads to claims from that shard, and to nothing else.
func TestWakeNamesShards(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r, watched := startWatched(t, path)
		assert.Equal(t, "published 1", r.wakes("1", wakeup.SetOf(0)))
		assert.Zero(t, watched.count.Load(), "no look")
		assert.EqualValues(t, 2, watched.claims[0].Load(), "the row, and then nothing more")
		assert.Zero(t, watched.claims[1].Load()+watched.claims[2].Load())

		assert.Equal(t, "pending 0", r.wakes("2", wakeup.SetOf(1)), "a wrong shard: it waits for the poll")
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		assert.Equal(t, "published 1", r.status("2"), "which is the guarantee")

		for i, shards := range []wakeup.Set{wakeup.Unknown, wakeup.SetOf(0, 3), wakeup.SetOf(17)} {
			looked := watched.count.Load()
			assert.Equal(t, "published 1", r.wakes(fmt.Sprint("unknown", i), shards), "shards that the store does not have are looked up")
			assert.Equal(t, looked+1, watched.count.Load())
		}
	})
}

// A wake-up that comes while its shard is being claimed from or completed is not lost, and waits
// for no poll.
func TestWakeDuringAnExchange(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r, watched := startWatched(t, path)
		names := []string{"2", "3", "4"}
		watched.after = func() { // the claim did not see what comes now, and no other follows
			if len(names) > 0 {
				r.insert(row{key: "k", name: names[0]})
				names = names[1:]
				r.proc.Wake(wakeup.SetOf(0))
			}
		}
		r.wakes("1", wakeup.SetOf(0))
		assert.Zero(t, r.open())
		assert.Zero(t, watched.count.Load())
		r.stop()
	})
}

// Whatever a wake-up names, nothing is claimed for a broker that is paused.
func TestWakeOfAPausedBroker(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r, watched := startWatched(t, path)
		r.pause(admin.Pause{Broker: "b"})
		r.proc.Wake(wakeup.Unknown)
		synctest.Wait()
		assert.Equal(t, "pending 0", r.wakes("1", wakeup.SetOf(0)))
		assert.Zero(t, watched.claims[0].Load())
		r.resume("b")
		r.wakes("2", wakeup.Unknown)
		assert.Equal(t, "published 1", r.status("1"))
	})
}

// An engine says whether it delivers the rows of a wake-up; if not, other processes must be
// notified.
func TestEngineWakeServes(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r := newRig(t, path, &fake{}, outbox.Policy{})
		a, b, c := wakeup.WakeUp{Broker: "a", Shards: 1}, wakeup.WakeUp{Broker: "b"}, wakeup.WakeUp{Broker: "c"}
		brokers := map[string]Target{"a": {Broker: &fake{}}, "b": {Broker: &fake{}}}
		idle, err := NewEngine(EngineConfig{Stores: map[string]driver.Delivery{"d": r.store}, Brokers: brokers})
		assert.NoError(t, err)
		assert.False(t, idle.Wake("d", a), "it does not run yet")
		engine, stop := r.engine(EngineConfig{Brokers: brokers})
		synctest.Wait()
		assert.True(t, engine.Wake("d", a, b))
		assert.True(t, engine.Wake("d"))
		assert.False(t, engine.Wake("d", a, c), "of one broker it knows nothing")
		assert.False(t, engine.Wake("e", a))
		assert.False(t, engine.Wake("e"))
		stop()
		assert.False(t, engine.Wake("d", a), "it has stopped")
	})
}
