package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/cleanup"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// While an exclusive task goes on, which may take hours, its transaction has no snapshot: it would
// keep dead rows from being pruned, and each claim beside it would take longer than the one before.
func TestExclusiveHoldsNothingBack(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	for _, mode := range []string{"", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			own := dsn
			if mode != "" {
				own = with(t, dsn, "default_query_exec_mode", mode)
			}
			store := openStore(t, own, "held_"+mode)
			_, err := store.Migrate(t.Context())
			require.NoError(t, err)
			for range 2 { // the second time its statements are prepared
				ran, err := store.Exclusive(t.Context(), "purge", func(ctx context.Context) error {
					return store.conn(ctx, func(conn *pgx.Conn) error {
						var open, held int
						err := conn.QueryRow(ctx, `SELECT count(*), count(backend_xmin) + count(backend_xid) FROM pg_stat_activity
							WHERE pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = $1::text::regclass::oid)`, store.table).Scan(&open, &held)
						assert.Equal(t, 1, open, "the transaction with the lock is to be seen")
						assert.Zero(t, held, "it has a snapshot")
						return err
					})
				})
				require.NoError(t, err)
				assert.True(t, ran)
			}
		})
	}
}

// A pool of one connection is enough for a purge, which a relay makes beside everything else.
func TestPurgeWithOneConnection(t *testing.T) {
	t.Parallel()
	dsn := with(t, testenv.Postgres(t), "pool_max_conns", "1")
	store := openStore(t, dsn, "narrow")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	_, err = store.pool.Exec(t.Context(), `INSERT INTO narrow (message_id, target_broker, stream, type, payload, status, published_at, finished_at)
		SELECT gen_random_uuid(), 'b', 's', 'T', '', 'published', '2000-01-01', '2000-01-01' FROM generate_series(1, 3)`)
	require.NoError(t, err)
	scheduler, err := cleanup.New(cleanup.Config{Databases: map[string]cleanup.Table{"default": store}, BatchSize: 2})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	reports, err := scheduler.Purge(ctx)
	require.NoError(t, err)
	require.Len(t, reports, 1)
	assert.Equal(t, 3, reports[0].Published)
	assert.Zero(t, store.pool.Stat().AcquiredConns())
}

// The connection with the lock is none of the pool's, but is set up as the pool's are.
func TestExclusiveOnACallersPool(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(testenv.Postgres(t))
	require.NoError(t, err)
	config.MaxConns = 1
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "SET search_path TO hidden_away")
		return err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer pool.Close()
	_, err = pool.Exec(t.Context(), "CREATE SCHEMA hidden_away")
	require.NoError(t, err)
	store, err := New(pool, "outbox")
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	ran, err := store.Exclusive(t.Context(), "purge", func(ctx context.Context) error { return pool.Ping(ctx) })
	require.NoError(t, err)
	assert.True(t, ran)
}

// The lock of a task can be had in a database that is not in UTF-8, whose encoding clients take
// over.
func TestExclusiveInAnotherEncoding(t *testing.T) {
	t.Parallel()
	store := openStore(t, with(t, testenv.Postgres(t), "client_encoding", "LATIN1"), "encoded")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	ran, err := store.Exclusive(t.Context(), "purge", func(ctx context.Context) error {
		again, err := store.Exclusive(ctx, "purge", func(context.Context) error { return nil })
		assert.False(t, again, "another transaction has it")
		return err
	})
	require.NoError(t, err)
	assert.True(t, ran)
}
