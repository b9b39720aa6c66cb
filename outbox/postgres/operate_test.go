package postgres

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// TestOperatorWaitsForClaims: what an operator does waits for the lock of each shard, and gives up
// in the end.
func TestOperatorWaitsForClaims(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	store := openStore(t, dsn, "waits")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	_, err = store.pool.Exec(t.Context(), fill("waits", 30)+"; UPDATE waits SET status = 'failed'", pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	for shard := range outbox.Shards {
		conn, err := pgx.Connect(t.Context(), dsn)
		require.NoError(t, err)
		exec(t, conn, "BEGIN")
		exec(t, conn, store.sql.lock, shardLock("b", shard))
		hasty, err := New(store.pool, "waits")
		require.NoError(t, err)
		hasty.patience = 0
		hasty.Replace("settings_operate", "'lock_timeout', '10s'", "'lock_timeout', '1ms'")
		for _, broker := range []string{"b", ""} {
			n, err := hasty.Requeue(t.Context(), admin.Filter{Broker: broker}, 100)
			require.ErrorContains(t, err, "lock timeout", "shard %d", shard)
			assert.Zero(t, n)
		}
		_, err = hasty.UnblockKey(t.Context(), "b", "key-1")
		require.ErrorContains(t, err, "lock timeout")
		n, err := hasty.Requeue(t.Context(), admin.Filter{Broker: "a"}, 1)
		require.NoError(t, err)
		assert.Equal(t, 1, n, "other brokers have locks of their own")
		n, err = hasty.Matches(t.Context(), admin.Filter{Broker: "b"}, 100)
		require.NoError(t, err)
		assert.Equal(t, 10, n, "looking takes no lock")
		exec(t, conn, "COMMIT")
		require.NoError(t, conn.Close(t.Context()))
	}
	n, err := store.Requeue(t.Context(), admin.Filter{Broker: "b"}, 100)
	require.NoError(t, err)
	assert.Equal(t, 10, n)
}
