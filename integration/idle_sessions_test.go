package integration_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
)

// A store uses no session that the server has ended while it was idle, as idle_session_timeout does.
func TestIdleSessionsEnd(t *testing.T) {
	t.Parallel()
	p := newPlace(t, outbox.Postgres)
	p.migrate()
	p.db.SetMaxOpenConns(1)
	store, err := openStore(t.Context(), p.driver, p.dsn)
	require.NoError(t, err)
	defer store.Close()
	for range 5 {
		_, err := store.Ready(t.Context(), "default", 0)
		require.NoError(t, err)
		var ended int // each, within the ten seconds that it is waited for
		require.NoError(t, p.db.QueryRowContext(t.Context(), `SELECT count(*) FILTER (WHERE pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()`).Scan(&ended))
		assert.Positive(t, ended)
	}
}
