package postgres

import (
	"database/sql"
	"testing"
	"time"

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
	var choice driver.Choice
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT array_agg(id) FROM (SELECT id FROM take WHERE target_broker = 'a' AND shard = 0 ORDER BY id LIMIT 5) AS head").Scan(&choice.IDs))
	claim := driver.Claim{Broker: "a", Limit: 5, Window: 5, Worker: "w", Lease: time.Minute}

	exec(t, conn, "BEGIN")
	exec(t, conn, readSQL("lock", "take"), shardLock("a", 0))
	_, err = thin{store}.Take(t.Context(), &claim, &choice)
	require.ErrorIs(t, err, claims.ErrConflict, "another transaction has the shard")
	exec(t, conn, "ROLLBACK")

	exec(t, conn, "BEGIN")
	exec(t, conn, "SELECT FROM take WHERE id = $1 FOR UPDATE", choice.IDs[2])
	claim.Unordered = true
	batch, err := thin{store}.Take(t.Context(), &claim, &choice)
	require.NoError(t, err)
	assert.Len(t, batch.Messages, 4, "all but the one that is locked")
	exec(t, conn, "ROLLBACK")
	assert.Zero(t, deadlocks(t, dsn))
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
	var choice driver.Choice
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT array_agg(id) FROM (SELECT id FROM conflicts WHERE target_broker = 'a' AND shard = 0 ORDER BY id LIMIT 5) AS head").Scan(&choice.IDs))
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
			changed := driver.Choice{IDs: append([]int64{choice.IDs[0] - 1}, choice.IDs...)} // one that is not there
			_, err := s.Take(t.Context(), &claim, &changed)
			return err
		},
		"the version has changed": func() error {
			_, err := s.Take(t.Context(), &claim, &driver.Choice{Version: 7, IDs: choice.IDs})
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
