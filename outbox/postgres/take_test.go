package postgres

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/claims"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// TestTakesDoNotWait: chosen rows are taken under the shard's lock, or not at all: two transactions that
// take, renew or mark the same rows in different orders would wait for each other until the server
// breaks one of them off, after a second. Where order is off there is no such lock, and a claim passes
// over a row that another session has locked.
func TestTakesDoNotWait(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	store := openStore(t, dsn, "take")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	exec(t, conn, fill("take", 100))
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

// A lift changes blocks, and waits for the session that has the shard.
func TestLiftsWaitForTheShard(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	store := openStore(t, dsn, "lifts")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	exec(t, conn, "BEGIN")
	exec(t, conn, readSQL("lock", "lifts"), shardLock("a", 0))
	lifted := make(chan error, 1)
	go func() { lifted <- thin{store}.Lift(t.Context(), &driver.Lift{Broker: "a"}) }()
	assert.Eventually(t, func() bool {
		var waits bool
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`).Scan(&waits))
		return waits || len(lifted) > 0
	}, time.Minute, time.Millisecond)
	assert.Empty(t, lifted, "it did not wait")
	exec(t, conn, "COMMIT")
	require.NoError(t, <-lifted)
}

// version is that of shard 0 of broker a.
func version(t *testing.T, conn *pgx.Conn) (n int64) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT coalesce((SELECT version FROM conflicts_shards WHERE target_broker = 'a' AND shard = 0), 0)").Scan(&n))
	return n
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

// errorLog notes the statements of batches that the server refuses, and so writes into its log.
type errorLog struct {
	mu    sync.Mutex
	texts []string
}

func (*errorLog) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (*errorLog) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (*errorLog) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (*errorLog) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
func (r *errorLog) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	if data.Err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.texts = append(r.texts, data.Err.Error()+": "+data.SQL)
	}
}

// TestConflictsKeepTheConnection: with several relays there are many conflicts. A new connection costs
// more than the work that was to be done on it, and an error in the server's log would wake an operator
// for nothing.
func TestConflictsKeepTheConnection(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	failed := &errorLog{}
	config.ConnConfig.Tracer = failed
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	store, err := New(pool, "conflicts")
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	exec(t, conn, fill("conflicts", 100))
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
			changed := driver.Choice{Version: version(t, conn), Rows: append([]driver.Ref{{ID: choice.Rows[0].ID - 1, MessageID: uuid.New()}}, choice.Rows...)} // one that is not there
			_, err := s.Take(t.Context(), &claim, &changed)
			return err
		},
		"a row waits by now": func() error {
			exec(t, conn, "UPDATE conflicts SET available_at = now() + interval '1 hour' WHERE message_id = $1", pgUUID(choice.Rows[3].MessageID))
			defer exec(t, conn, "UPDATE conflicts SET available_at = NULL")
			now := driver.Choice{Version: version(t, conn), Rows: choice.Rows}
			_, err := s.Take(t.Context(), &claim, &now)
			return err
		},
		"a block is none any more": func() error {
			_, err := s.Defer(t.Context(), &driver.Deferral{Broker: "a", Version: version(t, conn), Blocks: choice.Rows[:1], Rows: choice.Rows})
			return err
		},
		"the version has changed": func() error {
			_, err := s.Take(t.Context(), &claim, &driver.Choice{Version: 77, Rows: choice.Rows})
			return err
		},
		"blocks have changed before a lift":     func() error { return s.Lift(t.Context(), &driver.Lift{Broker: "a", Version: 77}) },
		"blocks have changed before a deferral": func() error { _, err := s.Defer(t.Context(), &driver.Deferral{Broker: "a", Version: 77}); return err },
	} {
		before := store.pool.Stat().NewConnsCount()
		for range 3 {
			require.ErrorIs(t, provoke(), claims.ErrConflict, name)
		}
		assert.Equal(t, before, store.pool.Stat().NewConnsCount(), name)
		assert.Empty(t, failed.texts, name)
	}
	choice.Version = version(t, conn)
	batch, err := s.Take(t.Context(), &claim, &choice)
	require.NoError(t, err)
	assert.Len(t, batch.Messages, 5, "nothing of what broke off has stayed")
}
