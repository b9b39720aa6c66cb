package monitor_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
	"github.com/gorm-fanout/fanout/outbox/postgres"
)

// The same on PostgreSQL: rows of two kinds of failure, one of which is repaired, and a purge.
func TestOnCallPostgres(t *testing.T) {
	t.Parallel()
	ctx, dsn := t.Context(), testenv.Postgres(t)
	store, err := postgres.Open(ctx, dsn, "")
	require.NoError(t, err)
	defer store.Close()
	_, err = store.Migrate(ctx)
	require.NoError(t, err)
	conn, err := pgx.Connect(ctx, dsn)
	require.NoError(t, err)
	defer conn.Close(ctx)
	insert := func(n int, broker string, status outbox.Status, lastError any) string {
		var id string
		for range n {
			id = uuid.NewString()
			_, err := conn.Exec(ctx, `INSERT INTO outbox_messages (message_id, target_broker, stream, type, payload, status, finished_at, published_at, last_error)
				VALUES ($1, $2, 's', 'Ordering.Placed', '{}', $3::text, CASE WHEN $3::text IN ('published', 'abandoned') THEN now() - interval '1 h' END,
					CASE WHEN $3::text = 'published' THEN now() - interval '1 h' END, $4)`, id, broker, string(status), lastError)
			require.NoError(t, err)
		}
		return id
	}
	insert(510, "partner", outbox.StatusFailed, timeout)
	abandoned := insert(7, "partner", outbox.StatusAbandoned, topic)
	insert(3, "default", outbox.StatusPublished, nil)
	console, me := monitor.NewConsole(map[string]admin.Administration{"main": store}), monitor.Actor{Name: "ann", Via: "go"}

	status := console.Status(ctx, 100)["main"]
	require.NoError(t, status.Err)
	assert.Equal(t, admin.Count{N: 100, More: true}, status.Counts[outbox.StatusFailed])
	found, err := console.Failures(ctx, "main", "")
	require.NoError(t, err)
	require.Len(t, found.Groups, 2)
	assert.Equal(t, []int{510, 7}, []int{found.Groups[0].Count, found.Groups[1].Count})
	requeue := monitor.Action{Verb: monitor.VerbRequeue, Fingerprint: found.Groups[1].Fingerprint, DryRun: true}
	results, err := console.Do(ctx, me, requeue)
	require.NoError(t, err)
	assert.Equal(t, admin.Count{N: 7}, results[0].Matched)
	requeue.DryRun = false
	results, err = console.Do(ctx, me, requeue)
	require.NoError(t, err)
	assert.EqualValues(t, 7, results[0].Changed)
	rows, err := console.Message(ctx, "main", abandoned)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	assert.Equal(t, outbox.StatusPending, rows[0].Status)

	seen, query := map[int64]bool{}, monitor.MessagesQuery{Limit: 100}
	for {
		page, err := console.Messages(ctx, "main", query)
		require.NoError(t, err)
		for i := range page.Records {
			assert.False(t, seen[page.Records[i].ID])
			seen[page.Records[i].ID] = true
		}
		if query.Cursor = page.Next; page.Next == "" {
			break
		}
	}
	assert.Len(t, seen, 520)
	purge := monitor.Action{Verb: monitor.VerbPurge, PublishedBefore: time.Minute, DryRun: true}
	results, err = console.Do(ctx, me, purge)
	require.NoError(t, err)
	assert.Equal(t, admin.Count{N: 3}, results[0].Matched)
	purge.DryRun = false
	results, err = console.Do(ctx, me, purge)
	require.NoError(t, err)
	assert.EqualValues(t, 3, results[0].Changed)
	entries, err := console.Audit(ctx, "main", 0, 10)
	require.NoError(t, err)
	assert.Len(t, entries, 2)
}
