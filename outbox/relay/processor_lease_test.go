package relay_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// A publish that takes longer than the lease is renewed and delivered once.
func TestProcessorRenews(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := &fake{publish: func(ctx context.Context, _ brokers.Message) error {
			time.Sleep(400 * time.Millisecond)
			return ctx.Err()
		}}
		r := start(t, path, broker, outbox.Policy{Lease: 3 * time.Second, PublishTimeout: 2900 * time.Millisecond})
		for i := range 6 {
			r.insert("", strconv.Itoa(i))
		}
		r.until(time.Minute, func() bool { return r.open() == "0" })
		r.stop()
		assert.Len(t, broker.delivered(), 6)
		assert.Zero(t, r.proc.Stats().LeaseLost)
	})
}

// The lease is gone while the broker is slow: the late outcome changes nothing, and the new owner's
// stands.
func TestProcessorLosesItsLease(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		var r *rig
		broker := &fake{publish: func(context.Context, brokers.Message) error {
			_, err := r.db.ExecContext(t.Context(), "UPDATE outbox_messages SET lock_token = 'another', locked_until = locked_until + 3600000000")
			return err
		}}
		r = newRig(t, path, broker, outbox.Policy{})
		t.Cleanup(func() { _ = r.db.Close() })
		r.insert("k", "1")
		r.start()
		r.until(time.Minute, func() bool { return r.proc.Stats().LeaseLost == 1 })
		r.stop()
		assert.Equal(t, "processing 0", r.status("1"))
		assert.Equal(t, "another", r.query("SELECT lock_token FROM outbox_messages"))
	})
}

// A stop in the middle of a batch finishes what is with the broker, releases the rest, and spends
// no attempt.
func TestProcessorStops(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		var r *rig
		broker := &fake{}
		broker.publish = func(context.Context, brokers.Message) error {
			if len(broker.delivered()) == 50 {
				r.cancel()
			}
			return nil
		}
		r = newRig(t, path, broker, outbox.Policy{})
		t.Cleanup(func() { _ = r.db.Close() })
		for i := range 500 {
			r.insert("", strconv.Itoa(i))
		}
		r.start()
		require.NoError(t, <-r.done)
		assert.Equal(t, "100", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'published'"), "the chunk in progress")
		assert.Equal(t, "400", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'pending' AND attempts = 0 AND lock_token IS NULL"))
	})
}

// Two processors of one broker share the work, keep each key's order, and deliver each message
// once.
func TestProcessorsShare(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := &fake{publish: func(context.Context, brokers.Message) error { time.Sleep(time.Millisecond); return nil }}
		first := newRig(t, path, broker, outbox.Policy{BatchSize: 20})
		second := newRig(t, path, broker, outbox.Policy{BatchSize: 20})
		t.Cleanup(func() { _, _ = first.db.Close(), second.db.Close() })
		for i := range 600 {
			first.insert(fmt.Sprintf("k%d", i%30), fmt.Sprintf("%d-%d", i%30, i/30))
		}
		first.start()
		second.start()
		first.until(time.Minute, func() bool { return first.open() == "0" })
		first.stop()
		second.stop()
		next := map[int]int{}
		for _, id := range broker.delivered() {
			var key, n int
			_, err := fmt.Sscanf(id, "%d-%d", &key, &n)
			require.NoError(t, err)
			assert.Equal(t, next[key], n, "key %d", key)
			next[key]++
		}
		assert.Len(t, broker.delivered(), 600)
		assert.Positive(t, first.proc.Stats().Published, "%+v", second.proc.Stats())
		assert.Positive(t, second.proc.Stats().Published, "%+v", first.proc.Stats())
	})
}

// A process died with the rows of a key: they are delivered at the first poll after the end of its
// lease, no earlier and no later.
func TestProcessorDeliversWhenALeaseHasEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		const lease, poll = time.Minute, 5 * time.Second
		broker := memory.New()
		r := newRig(t, path, broker, outbox.Policy{PollMin: poll, PollMax: poll})
		t.Cleanup(func() { _ = r.db.Close() })
		r.insert("k", "first")
		r.insert("k", "second")
		died, claimed := time.Now(), 0
		for shard := range r.store.Shards() {
			exchanged, err := r.store.Exchange(t.Context(), nil, &driver.Claim{Broker: "b", Shard: shard, Limit: 10, Window: 10, Bytes: 1 << 20, Lease: lease, Worker: "dead"})
			require.NoError(t, err)
			claimed += len(exchanged.Batch.Messages)
		}
		require.Equal(t, 2, claimed)
		r.start()
		r.until(time.Hour, func() bool { return r.open() == "0" })
		r.stop()
		published, err := strconv.ParseInt(r.query("SELECT min(published_at) FROM outbox_messages"), 10, 64)
		require.NoError(t, err)
		after := time.UnixMicro(published).Sub(died)
		assert.GreaterOrEqual(t, after, lease)
		assert.LessOrEqual(t, after, lease+poll)
	})
}
