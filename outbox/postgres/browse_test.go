package postgres

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/sqladmin"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// browsed is a migrated table.
func browsed(t *testing.T) *Store {
	t.Helper()
	store := openStore(t, testenv.Postgres(t), "browsed")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	return store
}

// A question of the dashboard changes nothing, and does not wait forever.
func TestLookSettings(t *testing.T) {
	t.Parallel()
	store := browsed(t)
	err := database{store}.Read(t.Context(), sqladmin.Browse, func(ctx context.Context, conn sqladmin.Conn) error {
		_, err := conn.ExecContext(ctx, store.Text("settings_browse"))
		require.NoError(t, err)
		assert.Equal(t, "5s", setting(t, conn, "statement_timeout"))
		_, err = conn.ExecContext(ctx, "DELETE FROM browsed")
		return err
	})
	require.ErrorContains(t, err, "read-only transaction")
}

// Two rows have one id where an identity has begun anew: each has its own state.
func TestStatesOfRepeatedIDs(t *testing.T) {
	t.Parallel()
	store := browsed(t)
	_, err := store.pool.Exec(t.Context(), `INSERT INTO browsed (id, message_id, target_broker, stream, type, payload, available_at) OVERRIDING SYSTEM VALUE
		SELECT 7, md5(n::text)::uuid, 'b', 's', 't', 'p', CASE WHEN n = 1 THEN now() + interval '1 hour' END FROM generate_series(1, 3) AS n`)
	require.NoError(t, err)
	list, err := store.List(t.Context(), admin.ListRequest{Broker: "b", Status: outbox.StatusPending, Limit: 10, Scan: 10})
	require.NoError(t, err)
	var states []outbox.State
	for i := range list.Records {
		states = append(states, list.Records[i].State)
	}
	assert.ElementsMatch(t, []outbox.State{outbox.StateDue, outbox.StateDue, outbox.StateScheduled}, states)
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
