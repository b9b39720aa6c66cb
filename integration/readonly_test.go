package integration_test

import (
	"database/sql"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
)

// readOnly makes the database read-only for everybody who connects from now on, and ends all other
// connections, as a server does that is demoted, or whose disk is full; or it takes that back.
// writer is not concerned.
func (b *bench) readOnly(writer *sql.DB, on bool) {
	b.Helper()
	parsed, err := url.Parse(b.dsn)
	require.NoError(b, err)
	value := "off"
	if on {
		value = "on"
	}
	for _, statement := range []string{
		"ALTER DATABASE " + strings.TrimPrefix(parsed.Path, "/") + " SET default_transaction_read_only = " + value,
		"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
	} {
		_, err := writer.ExecContext(b.Context(), statement)
		require.NoError(b, err, statement)
	}
}

// privileged is a single connection for which the database is never read-only.
func (b *bench) privileged() *sql.DB {
	b.Helper()
	dsn, err := url.Parse(b.dsn)
	require.NoError(b, err)
	query := dsn.Query()
	query.Set("default_transaction_read_only", "off")
	dsn.RawQuery = query.Encode()
	db, err := sql.Open("pgx", dsn.String())
	require.NoError(b, err)
	db.SetMaxOpenConns(1)
	b.Cleanup(func() { _ = db.Close() })
	return db
}

// While the database is read-only, a writer sees the error, and a relay that runs says so once,
// tries again no more often than it polls, and spends no attempt; it goes on by itself when the
// database can be written again.
func TestReadOnlyDatabase(t *testing.T) {
	t.Parallel()
	b := newBench(newPlace(t, outbox.Postgres))
	b.db.SetMaxIdleConns(0) // none of ours is there to be ended
	require.Zero(t, b.run("migrate").code)
	b.insert(1000)
	r := b.relay()
	eventually(t, func() bool { return b.count("finished_at IS NULL") == 0 })

	writer := b.privileged()
	b.readOnly(writer, true)
	rows := func(on *sql.DB) error {
		_, err := on.ExecContext(t.Context(), `INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, payload)
			SELECT gen_random_uuid(), 'default', $1::text, 'T', 'order-' || (n % 97), convert_to(json_build_object('key', n % 97, 'n', n)::text, 'UTF8')
			  FROM generate_series(1001, 1500) AS n`, b.stream)
		return err
	}
	require.ErrorContains(t, rows(b.db), "read-only transaction")
	require.NoError(t, rows(writer))

	failed := func() (n int) {
		require.NoError(t, writer.QueryRowContext(t.Context(), "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()").Scan(&n))
		return n
	}
	before, began := failed(), time.Now()
	eventually(t, func() bool { return time.Since(began) > 3*time.Second })
	tries := failed() - before
	// Two workers and four shards: each poll, from the second one on a second after the other,
	// tries the shards that have rows.
	assert.Less(t, tries, 60, "it backs off")
	assert.Equal(t, 500, b.count("status = 'pending' AND attempts = 0"))

	b.readOnly(writer, false)
	eventually(t, func() bool { return b.count("finished_at IS NULL") == 0 })
	code, _ := r.stop()
	assert.Zero(t, code)
	assert.Equal(t, 1500, b.count("status = 'published' AND attempts = 1"))
	b.checkOrder(1500)
	said := r.log.String()
	assert.Contains(t, said, "the relay needs the primary, not a read replica, and a server that is not set to read-only")
	assert.Contains(t, said, "database answers again")
	refused := strings.Count(said, "database call failed")
	assert.Positive(t, refused)
	assert.LessOrEqual(t, refused, 4, "it says so when that is news:\n%s", said)
	t.Logf("%d transactions failed in 3 s, %d lines say so", tries, refused)
}
