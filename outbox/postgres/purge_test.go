package postgres

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
)

// While an exclusive task goes on, which may take hours, its transaction has no snapshot: it would keep dead rows from being
// pruned, and each claim beside it would take longer than the one before.
func TestExclusiveHoldsNothingBack(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	for _, mode := range []string{"", "simple_protocol", "exec", "cache_describe", "describe_exec"} {
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

// The lock of a task can be had in a database that is not in UTF-8, whose encoding clients take over.
func TestExclusiveInAnotherEncoding(t *testing.T) {
	t.Parallel()
	store := openStore(t, with(t, testenv.Postgres(t), "client_encoding", "LATIN1"), "encoded")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	ran, err := store.Exclusive(t.Context(), "purge", func(ctx context.Context) error {
		again, err := store.Exclusive(ctx, "purge", func(context.Context) error { return nil })
		assert.False(t, again, "somebody has it")
		return err
	})
	require.NoError(t, err)
	assert.True(t, ran)
}
