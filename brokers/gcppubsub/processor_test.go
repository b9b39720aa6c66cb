package gcppubsub_test

import (
	"context"
	"database/sql"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/glebarez/sqlite"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
	"github.com/gorm-fanout/fanout/outbox/sqlite"
)

// TestProcessor: a processor on a SQLite file gives up the message that makes Pub/Sub fail each
// time, and that one alone: those behind it on its key, which shared its requests, lose no attempt
// and are published.
func TestProcessor(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.createTopic(t, "orders")
	const poison = "0198c5f0-0000-7000-8000-00000000000a"
	s.reacts(refusingWith(codes.Unknown, poison))

	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "outbox.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	store, err := sqlite.New(db, "")
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	insert := func(id, key string) {
		_, err := db.ExecContext(t.Context(),
			`INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, payload) VALUES (?, 'b', 'orders', 'T', ?, '{}')`, id, key)
		require.NoError(t, err)
	}
	insert(uuid.NewString(), "a")
	insert(poison, "a")
	for range 8 {
		insert(uuid.NewString(), "a")
		insert(uuid.NewString(), "b")
	}

	processor, err := relay.NewProcessor(relay.ProcessorConfig{
		Database: "test", Broker: "b", Store: store, Target: s.open(t), Log: slog.New(slog.DiscardHandler), Policy: outbox.Policy{
			PollMin: time.Millisecond, PollMax: 10 * time.Millisecond, Workers: 1,
			Retry: outbox.Retry{MaxAttempts: 3, BaseDelay: 10 * time.Millisecond, Jitter: -1},
		},
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- processor.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-done)
	})

	count := func(where string) (n int) {
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM outbox_messages WHERE `+where).Scan(&n))
		return n
	}
	require.Eventually(t, func() bool { return count("status IN ('published', 'abandoned')") == 18 }, 30*time.Second, 10*time.Millisecond)
	assert.Equal(t, 17, count("status = 'published'"))
	assert.Equal(t, 1, count("status = 'abandoned' AND attempts = 3 AND message_id = '"+poison+"'"))
	assert.Zero(t, count("attempts > 1 AND message_id <> '"+poison+"'"), "the others have had one attempt at most")
	assert.Len(t, s.received(t, "orders"), 17, "each once")
}
