package relay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
	"github.com/gorm-fanout/fanout/outbox/relay"
	"github.com/gorm-fanout/fanout/outbox/sqlite"
)

// sentinelStore counts the pages that are read of stranded rows.
type sentinelStore struct {
	*sqlite.Store

	mu    sync.Mutex
	pages int
}

func (s *sentinelStore) Stranded(ctx context.Context, broker string, after admin.Position, limit int) (admin.List, error) {
	s.mu.Lock()
	s.pages++
	s.mu.Unlock()
	return s.Store.Stranded(ctx, broker, after, limit)
}

func (s *sentinelStore) read() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.pages = 0 }()
	return s.pages
}

// Rows whose key block was removed by hand are named with the remedy when a relay starts, once an hour
// while they last, and are over when they were requeued. What is looked at is bounded.
func TestStrandedRowsAreNamed(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r := newRig(t, path, memory.New(), outbox.Policy{})
		t.Cleanup(func() { _ = r.db.Close() })
		exec := func(text string, args ...any) {
			t.Helper()
			_, err := r.db.ExecContext(t.Context(), text, args...)
			require.NoError(t, err)
		}
		const rows = 12_000 // of which all are deferred, and only the last is behind nothing
		exec(`INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, payload, deferred)
			WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
			SELECT printf('00000000-0000-0000-0000-%012d', i), 'b', 's', 'Ordering.OrderPlaced.v1', CASE WHEN i = ? THEN 'order-42' ELSE 'waits' END, x'', 1 FROM n`, rows, rows)
		exec(`INSERT INTO outbox_messages_key_blocks (target_broker, shard, ordering_key, block_id, block_message_id, wake_at, reason, since)
			SELECT 'b', shard, 'waits', 0, '00000000-0000-0000-0000-000000000000', 9223372036854775807, 'operator', 0 FROM outbox_messages LIMIT 1`)

		store := &sentinelStore{Store: r.store}
		var log guarded
		engine, err := relay.NewEngine(relay.EngineConfig{
			Stores: map[string]driver.Delivery{"db": store}, Brokers: map[string]relay.Target{"b": {Broker: memory.New(), Policy: outbox.Policy{PollMax: time.Minute}}},
			Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- engine.Run(ctx) }()
		lines := func() (found []string) {
			t.Helper()
			synctest.Wait()
			for line := range strings.Lines(log.take()) {
				if strings.Contains(line, "stranded") {
					found = append(found, strings.TrimSpace(line))
				}
			}
			return found
		}
		time.Sleep(time.Minute)
		assert.Empty(t, lines(), "the first 10,000 wait for an operator")
		assert.Equal(t, 10, store.read(), "pages of 1,000")
		time.Sleep(10 * time.Minute)
		said := lines()
		require.Len(t, said, 1)
		id := fmt.Sprintf("00000000-0000-0000-0000-%012d", rows)
		assert.Contains(t, said[0], `level=WARN msg="rows stranded" database=db remedy="fanout messages requeue --id `+id+` --broker b" broker=b rows=1 message_id=`+id+
			` type=Ordering.OrderPlaced.v1 ordering_key=order-42`)
		assert.EqualValues(t, 1, engine.Stats()[0].Stranded)
		time.Sleep(50 * time.Minute)
		assert.Empty(t, lines(), "it was said within the hour")
		time.Sleep(40 * time.Minute)
		assert.Len(t, lines(), 1, "it lasts")

		n, err := store.Requeue(t.Context(), admin.Filter{MessageIDs: []string{id}}, 10)
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		time.Sleep(30 * time.Minute)
		said = lines()
		require.Len(t, said, 1)
		assert.Contains(t, said[0], `level=INFO msg="rows no longer stranded" database=db broker=b`)
		assert.Zero(t, engine.Stats()[0].Stranded)
		assert.EqualValues(t, 1, engine.Stats()[0].Published)
		cancel()
		require.NoError(t, <-ended)
	})
}

// guarded is what was logged by whatever goroutine.
type guarded struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (g *guarded) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.text.Write(b)
}

// take returns what was logged since it was called last.
func (g *guarded) take() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	defer g.text.Reset()
	return g.text.String()
}

// A relay says in its heartbeats which brokers and destinations are unavailable, and that they are again.
func TestHeartbeatsSayWhatIsUnavailable(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		var gone atomic.Bool
		gone.Store(true)
		broker := memory.New()
		broker.Fail = func(m brokers.Message) error {
			if gone.Load() && m.Destination == "missing" {
				return brokers.Unavailable(brokers.ScopeDestination, errors.New("no such topic"))
			}
			return nil
		}
		r := newRig(t, path, broker, outbox.Policy{})
		t.Cleanup(func() { _ = r.db.Close() })
		engine, err := relay.NewEngine(relay.EngineConfig{
			Stores: map[string]driver.Delivery{"db": r.store}, Brokers: map[string]relay.Target{"b": {Broker: broker}}, Log: slog.New(slog.DiscardHandler),
		})
		require.NoError(t, err)
		for i, stream := range []string{"missing", "there", "missing", "there"} {
			_, err := r.db.ExecContext(t.Context(), `INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, payload) VALUES (?, 'b', ?, 'T', ?, x'')`,
				fmt.Sprintf("00000000-0000-0000-0000-%012d", i), stream, fmt.Sprintf("key-%d", i))
			require.NoError(t, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- engine.Run(ctx) }()
		said := func() []admin.Unavailable {
			t.Helper()
			instances, err := r.store.Instances(t.Context())
			require.NoError(t, err)
			require.Len(t, instances, 1)
			require.Empty(t, instances[0].Unreadable)
			return instances[0].Unavailable
		}
		time.Sleep(20 * time.Second) // less than a heartbeat: an outage is said at once
		require.Equal(t, []string{"missing"}, engine.Stats()[0].UnavailableDestinations)
		assert.Equal(t, []admin.Unavailable{{Broker: "b", Destination: "missing"}}, said())
		gone.Store(false)
		time.Sleep(10 * time.Minute)
		assert.Empty(t, engine.Stats()[0].UnavailableDestinations)
		assert.Empty(t, said())
		assert.EqualValues(t, 4, engine.Stats()[0].Published)
		cancel()
		require.NoError(t, <-ended)
	})
}
