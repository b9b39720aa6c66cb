package integration_test

import (
	"database/sql"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
)

// readOnly sets the database to read-only for all who connect from now on, or takes that back.
func (b *bench) readOnly(writer *sql.DB, on bool) {
	b.Helper()
	parsed, err := url.Parse(b.dsn)
	require.NoError(b, err)
	value := "off"
	if on {
		value = "on"
	}
	_, err = writer.ExecContext(b.Context(), "ALTER DATABASE "+strings.TrimPrefix(parsed.Path, "/")+" SET default_transaction_read_only = "+value)
	require.NoError(b, err)
}

// endOthers ends all connections but that of the statement, as a server does that is demoted.
const endOthers = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"

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

// endClaims ends all connections while a claim of a relay is being executed: it fails by that, before
// any meets a database that is read-only.
func (b *bench) endClaims(writer *sql.DB) {
	b.Helper()
	tx, err := writer.BeginTx(b.Context(), nil)
	require.NoError(b, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(b.Context(), "LOCK TABLE outbox_messages IN EXCLUSIVE MODE") // polls only read
	require.NoError(b, err)
	inserter, err := outbox.NewInserter(outbox.Postgres, "outbox_messages")
	require.NoError(b, err)
	eventually(b.T, func() bool {
		require.NoError(b, wakeup.Notify(b.Context(), b.db, inserter.Table(), []wakeup.WakeUp{{Broker: "default", Shards: wakeup.SetOf(0, 1, 2, 3)}}))
		// In one statement: a claim waits for a tenth of a second and gives way then, and has no connection until it tries again.
		var claims int
		require.NoError(b, tx.QueryRowContext(b.Context(), "SELECT count(pg_terminate_backend(pid)) FROM pg_locks "+
			"WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND relation = 'outbox_messages'::regclass AND mode = 'RowExclusiveLock' AND NOT granted").Scan(&claims))
		return claims > 0
	})
	_, err = tx.ExecContext(b.Context(), endOthers)
	require.NoError(b, err)
	require.NoError(b, tx.Commit())
}

// While the database is read-only, a writer sees the error. A relay that runs reports first what
// happened first, that its connections were ended, and then what stands, with the remedy, once. It
// spends no attempt, and continues without help when the database can be written again.
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
	b.endClaims(writer)
	rows := func(on *sql.DB) error {
		_, err := on.ExecContext(t.Context(), `INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, payload)
			SELECT gen_random_uuid(), 'default', $1::text, 'T', 'order-' || (n % 97), convert_to(json_build_object('key', n % 97, 'n', n)::text, 'UTF8')
			  FROM generate_series(1001, 1500) AS n`, b.stream)
		return err
	}
	require.ErrorContains(t, rows(b.db), "read-only transaction")
	require.NoError(t, rows(writer))

	const remedy = "the relay needs the primary, not a read replica, and a server that is not set to read-only"
	claims := func(parts ...string) int {
		n := 0
		for line := range strings.Lines(r.log.String()) {
			if !slices.ContainsFunc(append(parts, `"database call failed"`, `"claim rows"`), func(part string) bool { return !strings.Contains(line, part) }) {
				n++
			}
		}
		return n
	}
	failed := func() (n int) {
		require.NoError(t, writer.QueryRowContext(t.Context(), "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()").Scan(&n))
		return n
	}
	eventually(t, func() bool { return claims(remedy) > 0 })
	before := failed()
	eventually(t, func() bool { return failed() > before+5 })
	assert.Equal(t, 1, claims(remedy), "it goes on trying, and says so once:\n%s", r.log)
	// A claim that gives way to the lock in between has had its answer: then an end is said again.
	ended := 0
	for line := range strings.Lines(r.log.String()) {
		switch claim := strings.Contains(line, `"claim rows"`); {
		case claim && strings.Contains(line, `"database call failed"`) && strings.Contains(line, "terminating connection"):
			ended++
			assert.Equal(t, 1, ended, "the first cause, once while it stands:\n%s", r.log)
		case claim && strings.Contains(line, `"database answers again"`):
			ended = 0
		}
	}
	assert.Positive(t, claims("terminating connection"), "the first cause:\n%s", r.log)
	assert.Equal(t, 500, b.count("status = 'pending' AND attempts = 0"))

	b.readOnly(writer, false)
	_, err := writer.ExecContext(t.Context(), endOthers)
	require.NoError(t, err)
	eventually(t, func() bool { return b.count("finished_at IS NULL") == 0 })
	code, _ := r.stop()
	assert.Zero(t, code)
	assert.Equal(t, 1500, b.count("status = 'published' AND attempts = 1"))
	b.checkOrder(1500)
	assert.Contains(t, r.log.String(), "database answers again")
}
