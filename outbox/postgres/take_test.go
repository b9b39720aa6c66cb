package postgres

import (
	"database/sql"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox/claims"
	"github.com/gorm-fanout/fanout/outbox/driver"
)

// TestTakesDoNotWait: what was chosen is taken under the shard's lock, or not at all: two
// transactions that take, renew or mark the same rows in different orders would wait for each other
// until the server breaks one of them off, after a second. Where order is off there is no such lock,
// and a row that somebody else has locked is passed over.
func TestTakesDoNotWait(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	store := openStore(t, dsn, "take")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	exec(t, conn, fill("take", 100, "pending"))
	choice := driver.Choice{Rows: head(t, conn, "take")}
	claim := driver.Claim{Broker: "a", Limit: 5, Window: 5, Worker: "w", Lease: time.Minute}

	exec(t, conn, "BEGIN")
	exec(t, conn, readSQL("lock", "take"), shardLock("a", 0))
	_, err = thin{store}.Take(t.Context(), &claim, &choice)
	require.ErrorIs(t, err, claims.ErrConflict, "another transaction has the shard")
	exec(t, conn, "ROLLBACK")

	exec(t, conn, "BEGIN")
	exec(t, conn, "SELECT FROM take WHERE id = $1 FOR UPDATE", choice.Rows[2].ID)
	claim.Unordered = true
	batch, err := thin{store}.Take(t.Context(), &claim, &choice)
	require.NoError(t, err)
	assert.Len(t, batch.Messages, 4, "all but the one that is locked")
	exec(t, conn, "ROLLBACK")
	assert.Zero(t, deadlocks(t, dsn))
}

// head is the first five rows of shard 0 of broker a.
func head(t *testing.T, conn *pgx.Conn, table string) []driver.Ref {
	t.Helper()
	rows, err := conn.Query(t.Context(), "SELECT id, message_id::text FROM "+table+" WHERE target_broker = 'a' AND shard = 0 ORDER BY id LIMIT 5")
	require.NoError(t, err)
	refs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (ref driver.Ref, err error) {
		var id string
		if err = row.Scan(&ref.ID, &id); err == nil {
			ref.MessageID, err = uuid.Parse(id)
		}
		return ref, err
	})
	require.NoError(t, err)
	return refs
}

// deadlocks are those that the server has broken off in a database.
func deadlocks(t *testing.T, dsn string) (n int) {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").Scan(&n))
	return n
}

// TestConflictsKeepTheConnection: with several relays there are many, and a new connection costs more
// than what was to be done on it.
func TestConflictsKeepTheConnection(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	store := openStore(t, dsn, "conflicts")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	exec(t, conn, fill("conflicts", 100, "pending"))
	choice := driver.Choice{Rows: head(t, conn, "conflicts")}
	claim := driver.Claim{Broker: "a", Limit: 5, Window: 5, Worker: "w", Lease: time.Minute}
	s := thin{store}
	for name, provoke := range map[string]func() error{
		"another transaction has the shard": func() error {
			exec(t, conn, "BEGIN")
			defer exec(t, conn, "ROLLBACK")
			exec(t, conn, readSQL("lock", "conflicts"), shardLock("a", 0))
			_, err := s.Take(t.Context(), &claim, &choice)
			return err
		},
		"a row has changed": func() error {
			changed := driver.Choice{Rows: append([]driver.Ref{{ID: choice.Rows[0].ID - 1, MessageID: uuid.New()}}, choice.Rows...)} // one that is not there
			_, err := s.Take(t.Context(), &claim, &changed)
			return err
		},
		"the version has changed": func() error {
			_, err := s.Take(t.Context(), &claim, &driver.Choice{Version: 7, Rows: choice.Rows})
			return err
		},
		"blocks have changed before a lift":     func() error { return s.Lift(t.Context(), &driver.Lift{Broker: "a", Version: 7}) },
		"blocks have changed before a deferral": func() error { _, err := s.Defer(t.Context(), &driver.Deferral{Broker: "a", Version: 7}); return err },
	} {
		before := store.pool.Stat().NewConnsCount()
		for range 3 {
			require.ErrorIs(t, provoke(), claims.ErrConflict, name)
		}
		assert.Equal(t, before, store.pool.Stat().NewConnsCount(), name)
	}
	batch, err := s.Take(t.Context(), &claim, &choice)
	require.NoError(t, err)
	assert.Len(t, batch.Messages, 5, "nothing of what broke off has stayed")
}
