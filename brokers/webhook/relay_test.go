package webhook_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/glebarez/sqlite"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
	"github.com/gorm-fanout/fanout/outbox/sqlite"
)

// A receiver that has another secret, and answers 400 as many do, costs no message an attempt,
// however long it takes to find out; and the one message that it really refuses is abandoned.
func TestRelayWithAWrongSecret(t *testing.T) {
	t.Parallel()
	p := startPartner(t, true)
	p.answers(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "invalid signature", http.StatusBadRequest)
	})

	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "outbox.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	store, err := sqlite.New(db, "")
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	insert := func(id, key string) {
		_, err := db.ExecContext(t.Context(),
			`INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, payload) VALUES (?, 'partner', 'orders', 'T', ?, '{}')`, id, key)
		require.NoError(t, err)
	}
	count := func(where string) (n int) {
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM outbox_messages WHERE `+where).Scan(&n))
		return n
	}
	const messages, keys = 100, 10
	poison := uuid.NewString()
	p.refuse(t, poison)
	insert(poison, "k0")
	for i := range messages - 1 {
		insert(uuid.NewString(), fmt.Sprint("k", i%keys))
	}
	processor, err := relay.NewProcessor(relay.ProcessorConfig{
		Database: "test", Broker: "partner", Store: store, Target: p.open(t), Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Policy: outbox.Policy{
			PollMin: time.Millisecond, PollMax: 10 * time.Millisecond,
			Breaker: outbox.Breaker{MinDelay: time.Millisecond, MaxDelay: 20 * time.Millisecond},
			Retry:   outbox.Retry{MaxAttempts: 3, BaseDelay: 10 * time.Millisecond, Jitter: -1},
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

	require.Eventually(t, func() bool { return p.requests() > 5*keys }, 4*patience, 10*time.Millisecond, "the first of each key could have had its attempts")
	assert.Equal(t, messages, count("finished_at IS NULL AND attempts = 0"))
	assert.Positive(t, count("last_error LIKE '%invalid signature%check the secret%'"), "it says what to do")

	p.answers(nil)
	require.Eventually(t, func() bool { return count("finished_at IS NULL") == 0 }, 4*patience, 10*time.Millisecond)
	assert.Equal(t, 1, count("status = 'abandoned'"))
	assert.Equal(t, 1, count("status = 'abandoned' AND attempts = 3 AND message_id = '"+poison+"'"))
	assert.Equal(t, messages-1, count("status = 'published' AND attempts <= 1"))
}
