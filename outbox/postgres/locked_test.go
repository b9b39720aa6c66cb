package postgres

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
)

// Whoever has the shards' locks neither waits without end nor sleeps with them: the server breaks it off.
func TestLockedIsBrokenOff(t *testing.T) {
	t.Parallel()
	store := openStore(t, testenv.Postgres(t), "locked")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	for range 2 { // on one connection: no setting outlives its transaction
		require.NoError(t, store.locked(t.Context(), []string{"b"}, func(tx pgx.Tx) error {
			for _, name := range []string{"lock_timeout", "idle_in_transaction_session_timeout"} {
				var value string
				if err := tx.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&value); err != nil {
					return err
				}
				assert.Equal(t, "10s", value, name)
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
