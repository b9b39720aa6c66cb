package relay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/outbox"
)

// fill writes n rows at once, named prefix-0, prefix-1 ...; change is SQL for the columns priority
// and available_at.
func (r *rig) fill(prefix, key string, n, priority int, after time.Duration) {
	r.t.Helper()
	tx, err := r.db.BeginTx(r.t.Context(), nil)
	require.NoError(r.t, err)
	var available any
	if after > 0 {
		available = time.Now().Add(after).UnixMicro()
	}
	for i := range n {
		_, err := tx.ExecContext(r.t.Context(), `INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, priority, available_at, payload)
			VALUES (?, 'b', 's', 'T', nullif(?, ''), ?, ?, ?)`, uuid.NewString(), key, priority, available, fmt.Appendf(nil, "%s-%d", prefix, i))
		require.NoError(r.t, err)
	}
	require.NoError(r.t, tx.Commit())
}

// of lists what was delivered with a prefix.
func of(delivered []string, prefix string) []string {
	return slices.DeleteFunc(delivered, func(name string) bool { return !strings.HasPrefix(name, prefix+"-") })
}

func names(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return names
}

// Thousands of followers behind a failed head are out of the others' way, and come in order when it
// has gone through.
func TestProcessorFollowersAreInNobodysWay(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		var works atomic.Bool
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			if m.ID == "stuck-0" && !works.Load() {
				return brokers.Retryable(errors.New("not yet"))
			}
			return nil
		}}
		r := start(t, path, broker, outbox.Policy{BatchSize: 10, PollMax: time.Minute, Retry: outbox.Retry{MaxAttempts: 100}})
		r.fill("stuck", "stuck", 1500, 0, 0)
		r.fill("other", "other", 30, 0, 0)
		r.until(2*time.Minute, func() bool { return len(of(broker.delivered(), "other")) == 30 })
		assert.Empty(t, of(broker.delivered(), "stuck"))
		assert.Equal(t, "1500", r.query("SELECT count(*) FROM outbox_messages WHERE deferred"))
		r.fill("late", "stuck", 20, 0, 0)
		time.Sleep(time.Hour)
		assert.Empty(t, of(broker.delivered(), "late"))
		works.Store(true)
		r.until(3*time.Hour, func() bool { return r.open() == "0" })
		r.stop()
		assert.Equal(t, names("stuck", 1500), of(broker.delivered(), "stuck"))
		assert.Equal(t, names("late", 20), of(broker.delivered(), "late"))
		all := broker.delivered()
		assert.Less(t, slices.Index(all, "stuck-1499"), slices.Index(all, "late-0"))
		assert.Equal(t, "0", r.query("SELECT count(*) FROM outbox_messages_key_blocks"))
	})
}

// Rows scheduled for later do not hide the ones behind them, with order and without.
func TestProcessorScheduledRowsAreInNobodysWay(t *testing.T) {
	t.Parallel()
	for _, unordered := range []bool{false, true} {
		t.Run(fmt.Sprintf("unordered=%t", unordered), func(t *testing.T) {
			inBubble(t, func(t *testing.T, path string) {
				broker := &fake{publish: func(context.Context, brokers.Message) error { return nil }}
				r := newRig(t, path, broker, outbox.Policy{BatchSize: 10, PollMax: time.Minute, Unordered: unordered})
				t.Cleanup(func() { _ = r.db.Close() })
				r.fill("later", "", 1200, 0, time.Hour)
				r.fill("now", "k", 30, 0, 0)
				r.start()
				r.until(2*time.Minute, func() bool { return len(of(broker.delivered(), "now")) == 30 })
				assert.Empty(t, of(broker.delivered(), "later"))
				time.Sleep(time.Hour)
				r.until(time.Minute, func() bool { return r.open() == "0" })
				r.stop()
				assert.Len(t, of(broker.delivered(), "later"), 1200)
			})
		})
	}
}

// A backlog of low priority gives way to normal rows, also to those of its own keys, gets its share
// all the same, and keeps its order.
func TestProcessorBackfillGivesWay(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := &fake{publish: func(context.Context, brokers.Message) error { time.Sleep(time.Millisecond); return nil }}
		r := newRig(t, path, broker, outbox.Policy{BatchSize: 10, Workers: 1})
		t.Cleanup(func() { _ = r.db.Close() })
		r.fill("low", "a", 500, -10, 0)
		r.start()
		r.until(10*time.Second, func() bool { return len(broker.delivered()) >= 50 })
		r.fill("urgent", "", 10, 100, 0)
		r.fill("same", "a", 1, 0, 0)
		r.fill("normal", "b", 500, 0, 0)
		seen := len(broker.delivered())
		r.until(10*time.Second, func() bool { return len(of(broker.delivered(), "normal")) == 500 })
		low := len(of(broker.delivered(), "low"))
		assert.Less(t, low, 300, "normal rows came first")
		assert.Greater(t, low, seen+20, "but the backfill was not starved")
		all := broker.delivered()
		assert.Less(t, slices.Index(all, "urgent-9"), seen+90, "urgent rows came with the next look")
		r.until(time.Minute, func() bool { return r.open() == "0" })
		r.stop()
		assert.Equal(t, names("low", 500), of(broker.delivered(), "low"))
		assert.Less(t, slices.Index(all, "same-0"), seen+100, "500 earlier rows of its key have a low priority")
	})
}

// Urgent work without end comes first, and leaves the other classes their share.
func TestProcessorUrgentWorkStarvesNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := &fake{publish: func(context.Context, brokers.Message) error { time.Sleep(time.Millisecond); return nil }}
		r := newRig(t, path, broker, outbox.Policy{BatchSize: 10, Workers: 1})
		t.Cleanup(func() { _ = r.db.Close() })
		r.fill("urgent", "", 1500, 1, 0)
		r.fill("low", "b", 1000, -1, 0)
		r.fill("normal", "a", 1000, 0, 0)
		r.start()
		r.until(time.Minute, func() bool { return len(of(broker.delivered(), "urgent")) == 1500 })
		r.stop()
		assert.InDelta(t, 1500*192/693, len(of(broker.delivered(), "normal")), 160, "its share, give or take two turns")
		assert.InDelta(t, 1500*115/693, len(of(broker.delivered(), "low")), 160)
	})
}

func TestProcessorDefersTheKeyOfAnAbandonedMessage(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			if m.ID == "a-0" {
				return brokers.Permanent(errors.New("refused"))
			}
			return nil
		}}
		r := start(t, path, broker, outbox.Policy{BlockAbandoned: true, PollMax: time.Minute})
		r.fill("a", "a", 3, 0, 0)
		r.fill("b", "b", 3, 0, 0)
		r.until(time.Minute, func() bool { return r.open() == "2" })
		assert.Equal(t, "abandoned 1", r.status("a-0"))
		time.Sleep(3 * time.Hour)
		r.fill("a2", "a", 1, 0, 0)
		time.Sleep(time.Hour)
		assert.Equal(t, "3", r.open(), "the key waits for an operator")
		r.stop()
	})
}

// Nor do the rows of that key hold up what it has of another class.
func TestProcessorBackfillPassesAKeyThatBlocks(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			if m.ID == "a-0" {
				return brokers.Permanent(errors.New("refused"))
			}
			return nil
		}}
		r := start(t, path, broker, outbox.Policy{BlockAbandoned: true, PollMax: time.Minute})
		r.fill("a", "a", 3, 0, 0)
		r.fill("low", "a", 3, -1, 0)
		r.until(10*time.Minute, func() bool { return r.open() == "2" })
		assert.Equal(t, names("low", 3), of(broker.delivered(), "low"))
		r.stop()
	})
}

// A message whose time to live has passed expired by its own contract: its key goes on, whatever
// becomes of keys of abandoned messages.
func TestProcessorExpiredMessagesBlockNoKey(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r := start(t, path, &fake{publish: func(context.Context, brokers.Message) error { return nil }}, outbox.Policy{BlockAbandoned: true, PollMax: time.Minute})
		_, err := r.db.ExecContext(t.Context(), `INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, payload, expires_at)
			SELECT printf('01a1fd9d-d6b8-7eca-9afc-%012d', value), 'b', 's', 'T', 'k', x'', iif(value < 4, 1, NULL) FROM json_each('[1, 2, 3, 4, 5]')`)
		require.NoError(t, err)
		r.until(10*time.Minute, func() bool { return r.open() == "0" })
		var published, abandoned int
		require.NoError(t, r.db.QueryRowContext(t.Context(),
			"SELECT sum(status = 'published'), sum(status = 'abandoned') FROM outbox_messages").Scan(&published, &abandoned))
		assert.Equal(t, [2]int{2, 3}, [2]int{published, abandoned})
		r.stop()
	})
}
