package relay_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/driver"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// A row that somebody else has taken meanwhile is theirs.
func TestHandOffOfALostLease(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := memory.New()
		h := newHandRig(t, path, broker, outbox.Policy{})
		h.begin()
		var other driver.Exchanged
		h.watched.before = func() {
			h.query("UPDATE outbox_messages SET locked_until = 1 RETURNING 1")
			var err error
			other, err = h.store.Exchange(t.Context(), nil, &driver.Claim{Broker: "b", Limit: 1, Window: 1, Lease: time.Hour, Worker: "other"})
			require.NoError(t, err)
		}
		require.True(t, h.commit(handed("k", "1")))
		synctest.Wait()
		require.Len(t, other.Batch.Messages, 1)
		assert.Empty(t, broker.Messages("s"))
		assert.EqualValues(t, 1, h.stats().Gone)

		h.watched.before = func() {
			h.query("UPDATE outbox_messages SET locked_until = 1 WHERE CAST(payload AS TEXT) = '2' RETURNING 1")
		}
		require.True(t, h.commit(handed("j", "2")))
		synctest.Wait()
		assert.Equal(t, "published 1", h.status("2"), "nobody has taken it: it went back, and was claimed")
		assert.EqualValues(t, 1, h.stats().Behind)
		h.stop()
	})
}

// An earlier open row of the key, wherever it is, goes first.
func TestHandOffBehindAnEarlierRow(t *testing.T) {
	t.Parallel()
	for name, earlier := range map[string]string{
		"in the shard":    "UPDATE outbox_messages SET locked_until = NULL RETURNING 1",
		"of low priority": "UPDATE outbox_messages SET priority = -1 RETURNING 1",
		"a block":         "UPDATE outbox_messages SET deferred = 1 RETURNING 1",
		"in other hands":  "UPDATE outbox_messages SET status = 'processing', lock_token = 'x', locked_until = 9e18 RETURNING 1",
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, path string) {
				broker := memory.New()
				h := newHandRig(t, path, broker, outbox.Policy{})
				h.begin()
				h.insert("k", "1") // nobody tells of it
				h.query(earlier)
				if name == "a block" {
					h.query(`INSERT INTO outbox_messages_key_blocks (block_id, block_message_id, target_broker, shard, ordering_key, reason, since, wake_at)
						SELECT id, message_id, 'b', 0, 'k', 'backoff', 0, 9223372036854775807 FROM outbox_messages RETURNING 1`)
				}
				require.True(t, h.commit(handed("k", "2"), handed("j", "3")))
				synctest.Wait()
				assert.EqualValues(t, 1, h.stats().Behind)
				assert.EqualValues(t, 1, h.stats().Sent, "of another key")
				first := broker.Messages("s")
				require.NotEmpty(t, first)
				assert.Equal(t, "3", string(first[0].Payload))
				if name == "a block" || name == "in other hands" {
					require.Len(t, first, 1)
					assert.Equal(t, "pending 0", h.status("2"))
				} else {
					for range 2 { // the backfill, and then what waits for it
						h.engine.Wake("d")
						synctest.Wait()
					}
					require.Len(t, broker.Messages("s"), 3)
					assert.Equal(t, "1", string(broker.Messages("s")[1].Payload))
				}
				h.stop()
			})
		})
	}
}

// While a shard has a backlog, all goes by the database.
func TestHandOffBehindABacklog(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		h := newHandRig(t, path, memory.New(), outbox.Policy{})
		h.begin()
		for range 101 {
			h.insert("j", "j")
		}
		require.True(t, h.commit(handed("k", "1"), handed("", "2")))
		synctest.Wait()
		assert.EqualValues(t, 1, h.stats().Behind)
		assert.EqualValues(t, 1, h.stats().Sent, "without a key there is nothing to overtake")
		assert.Equal(t, "0", h.open(), "the shard was marked")
		h.stop()
	})
}

// A pause, an outage and a shutdown give back what is queued, and nothing is charged.
func TestHandOffIsWithdrawn(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		var down atomic.Bool
		broker := &fake{publish: func(context.Context, brokers.Message) error {
			if down.Load() {
				return brokers.Unavailable(brokers.ScopeBroker, assert.AnError)
			}
			return nil
		}}
		h := newHandRig(t, path, broker, outbox.Policy{Breaker: outbox.Breaker{TripAfter: 1}})
		h.begin()
		held := h.write(handed("k", "1"))
		require.NotNil(t, held)
		_, err := h.store.Pause(t.Context(), driver.Pause{Broker: "b"}) // by another process: ours does not know yet
		require.NoError(t, err)
		held.Commit()
		synctest.Wait()
		assert.EqualValues(t, 1, h.stats().Behind)
		h.engine.Wake("d")
		synctest.Wait()
		assert.Nil(t, h.engine.Reserve("d", outbox.SQLite, []outbox.Row{handed("k", "2")}), "now it does")
		_, err = h.store.Resume(t.Context(), "b")
		require.NoError(t, err)
		h.engine.Wake("d")
		synctest.Wait()
		assert.Equal(t, []string{"1"}, broker.delivered())

		held = h.write(handed("k", "2"))
		require.NotNil(t, held)
		down.Store(true)
		h.insert("j", "j")
		h.engine.Wake("d")
		synctest.Wait()
		require.True(t, h.engine.Stats()[0].Unavailable)
		held.Commit()
		assert.Nil(t, h.engine.Reserve("d", outbox.SQLite, []outbox.Row{handed("k", "3")}))
		synctest.Wait()
		assert.EqualValues(t, 1, h.stats().Withdrawn)
		assert.Equal(t, "pending 0", h.status("2"))
		down.Store(false)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		assert.Equal(t, "0", h.open())

		held = h.write(handed("k", "4"))
		require.NotNil(t, held)
		h.cancel()
		synctest.Wait()
		select {
		case <-h.done:
			t.Error("a stop waits for what has a place")
		default:
		}
		held.Commit()
		require.NoError(t, <-h.done)
		assert.EqualValues(t, 2, h.stats().Withdrawn)
		assert.Equal(t, "pending 0", h.status("4"))
		assert.NotContains(t, broker.delivered(), "4")
	})
}

// A verification whose answer takes until half of the lease is over comes too late to begin.
func TestHandOffOfALateVerification(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := memory.New()
		h := newHandRig(t, path, broker, outbox.Policy{Lease: 100 * time.Second})
		h.begin()
		h.watched.before = func() { time.Sleep(20 * time.Second) }
		held := h.write(handed("k", "1"))
		require.NotNil(t, held)
		time.Sleep(35 * time.Second)
		held.Commit()
		time.Sleep(21 * time.Second)
		synctest.Wait()
		assert.Equal(t, relay.HandOffStats{Withdrawn: 1}, h.stats())
		assert.Equal(t, "published 1", h.status("1"), "by a claim")
		h.stop()
	})
}

// What comes when nobody is there any more waits for the end of its lease. The stop does not wait
// for ever.
func TestHandOffToNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := memory.New()
		h := newHandRig(t, path, broker, outbox.Policy{Lease: time.Hour})
		h.begin()
		held := h.write(handed("k", "1"))
		require.NotNil(t, held)
		h.stop()
		held.Commit()
		assert.Equal(t, "processing 0", h.status("1"))

		again := newHandRig(t, path, broker, outbox.Policy{Lease: time.Hour})
		again.begin()
		assert.Equal(t, "processing 0", again.status("1"))
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		assert.Equal(t, "published 1", again.status("1"))
		again.stop()
	})
}

// A database that does not answer is asked again, but not beyond half of the lease. Until then
// nothing is sent.
func TestHandOffWithoutAVerification(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := memory.New()
		h := newHandRig(t, path, broker, outbox.Policy{})
		h.begin()
		failure := assert.AnError
		h.watched.fail.Store(&failure)
		require.True(t, h.commit(handed("k", "1")))
		time.Sleep(30 * time.Second)
		synctest.Wait()
		assert.Empty(t, broker.Messages("s"))
		h.watched.fail.Store(nil)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		assert.Equal(t, "published 1", h.status("1"))
		h.stop()
	})
}

// The allocation of a reservation is safe when many commit at once, and no room is lost.
func TestHandOffAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		h := newHandRig(t, path, memory.New(), outbox.Policy{BatchSize: 8})
		h.begin()
		var writers sync.WaitGroup
		for range 8 {
			writers.Go(func() {
				for n := range 100 {
					r := h.engine.Reserve("d", outbox.SQLite, []outbox.Row{handed("", "x"), handed("k", "y")})
					if n%2 == 0 {
						r.Commit()
					}
					r.Cancel()
				}
			})
		}
		writers.Wait()
		synctest.Wait()
		full := h.engine.Reserve("d", outbox.SQLite, slicesOf(8))
		require.NotNil(t, full, "all room is free again: %+v", h.stats())
		full.Cancel()
		h.stop()
	})
}

func slicesOf(n int) []outbox.Row {
	rows := make([]outbox.Row, n)
	for i := range rows {
		rows[i] = handed("", "x")
	}
	return rows
}
