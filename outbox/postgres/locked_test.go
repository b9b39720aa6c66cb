package postgres

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox/internal/sqladmin"
)

// Whoever has the shards' locks neither waits without end nor sleeps with them: the server breaks
// it off.
func TestLockedIsBrokenOff(t *testing.T) {
	t.Parallel()
	store := openStore(t, testenv.Postgres(t), "locked")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	for range 2 { // on one connection: no setting outlives its transaction
		require.NoError(t, database{store}.Write(t.Context(), sqladmin.Operate, func(ctx context.Context, conn sqladmin.Conn) error {
			if _, err := conn.ExecContext(ctx, store.Text("settings_operate")); err != nil {
				return err
			}
			for _, name := range []string{"lock_timeout", "idle_in_transaction_session_timeout"} {
				assert.Equal(t, "10s", setting(t, conn, name), name)
			}
			return nil
		}))
		require.NoError(t, store.conn(t.Context(), func(conn *pgx.Conn) error {
			var value string
			err := conn.QueryRow(t.Context(), "SELECT current_setting('idle_in_transaction_session_timeout')").Scan(&value)
			assert.NotEqual(t, "10s", value)
			return err
		}))
	}
}

// setting reads a setting of the transaction.
func setting(t *testing.T, conn sqladmin.Conn, name string) (value string) {
	t.Helper()
	rows, err := conn.QueryContext(t.Context(), "SELECT current_setting($1)", name)
	require.NoError(t, err)
	defer rows.Close()
	require.True(t, rows.Next())
	require.NoError(t, rows.Scan(&value))
	require.NoError(t, rows.Err())
	return value
}
