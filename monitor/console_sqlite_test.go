package monitor_test

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/glebarez/sqlite"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
	"github.com/gorm-fanout/fanout/outbox/sqlite"
)

func open(t *testing.T, opts ...monitor.Option) (*sql.DB, *monitor.Console) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "outbox.db")+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	store, err := sqlite.New(db, "")
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	return db, monitor.NewConsole(map[string]admin.Administration{"main": store}, append(opts, monitor.WithBrokers("default", "partner"))...)
}

func insert(t *testing.T, db *sql.DB, broker string, status outbox.Status, lastError string) string {
	t.Helper()
	id, finished := uuid.NewString(), sql.NullInt64{Int64: time.Now().Add(-time.Hour).UnixMicro(), Valid: status.Terminal()}
	_, err := db.ExecContext(t.Context(), `INSERT INTO outbox_messages (message_id, target_broker, stream, type, payload, status, finished_at, published_at, last_error)
		VALUES (?1, ?2, 's', 'Ordering.Placed', x'7b7d', ?3, ?4, CASE WHEN ?3 = 'published' THEN ?4 END, NULLIF(?5, ''))`, id, broker, string(status), finished, lastError)
	require.NoError(t, err)
	return id
}

const (
	timeout = `{"class":"retryable","message":"timeout after 17 ms","at":"2026-01-02T03:04:05Z","attempt":1}`
	topic   = `{"class":"permanent","message":"no topic \"a\"","at":"2026-01-02T03:04:05Z","attempt":2}`
)

// The whole way of a person on call, on a real store: look, find out why, count, repair, see it in
// the audit.
func TestOnCall(t *testing.T) {
	t.Parallel()
	db, console := open(t)
	for range 600 {
		insert(t, db, "partner", outbox.StatusFailed, timeout)
	}
	for range 7 {
		insert(t, db, "partner", outbox.StatusAbandoned, topic)
	}
	published := insert(t, db, "default", outbox.StatusPublished, "")
	ctx, me := t.Context(), monitor.Actor{Name: "ann", Via: "go"}

	status := console.Status(ctx, 100)["main"]
	require.NoError(t, status.Err)
	require.Len(t, status.Brokers, 2)
	partner := status.Brokers[1]
	assert.Equal(t, admin.Count{N: 100, More: true}, partner.Counts[outbox.StatusFailed])
	assert.Equal(t, admin.Count{N: 7}, partner.Counts[outbox.StatusAbandoned])

	found, err := console.Failures(ctx, "main", "partner")
	require.NoError(t, err)
	require.Len(t, found.Groups, 2)
	assert.Equal(t, 600, found.Groups[0].Count)
	group := found.Groups[1]
	assert.Equal(t, []any{7, "permanent", `no topic "a"`}, []any{group.Count, group.Class, group.Message})

	requeue := monitor.Action{Verb: monitor.VerbRequeue, Fingerprint: group.Fingerprint, DryRun: true, Reason: "the topic is there"}
	results, err := console.Do(ctx, me, requeue)
	require.NoError(t, err)
	assert.Equal(t, admin.Count{N: 7}, results[0].Matched)
	requeue.DryRun = false
	results, err = console.Do(ctx, me, requeue)
	require.NoError(t, err)
	assert.EqualValues(t, 7, results[0].Changed)
	results, err = console.Do(ctx, me, monitor.Action{Verb: monitor.VerbRequeue, Filter: admin.Filter{Broker: "partner"}})
	require.NoError(t, err)
	assert.EqualValues(t, 600, results[0].Changed)
	results, err = console.Do(ctx, me, monitor.Action{Verb: monitor.VerbReplay, Filter: admin.Filter{MessageIDs: []string{published}}})
	require.NoError(t, err)
	assert.EqualValues(t, 1, results[0].Changed)

	entries, err := console.Audit(ctx, "main", 0, 10)
	require.NoError(t, err)
	require.Len(t, entries, 3)
	assert.EqualValues(t, 1, entries[0].Rows)
	assert.Equal(t, "the topic is there", entries[2].Reason)
	assert.False(t, entries[2].EndedAt.IsZero())
	assert.Contains(t, entries[2].Filter, group.Fingerprint)

	var seen int
	query := monitor.MessagesQuery{Limit: 250}
	for {
		page, err := console.Messages(ctx, "main", query)
		require.NoError(t, err)
		seen += len(page.Records)
		if query.Cursor = page.Next; page.Next == "" {
			break
		}
	}
	assert.Equal(t, 608, seen)
	rows, err := console.Message(ctx, "main", published)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	assert.Equal(t, "{}", string(rows[0].Payload))
}
