package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The check writes nothing: a connection that may not write can do it.
func TestCheckWritesNothing(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "outbox.db")
	db := openDB(t, file)
	store, err := New(db, "outbox")
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), `DROP INDEX outbox_failing;
		CREATE INDEX outbox_failing ON outbox (target_broker, id) WHERE finished_at ISNULL AND last_error NOTNULL`)
	require.NoError(t, err)
	store, err = New(openDB(t, file+"?_pragma=query_only(1)"), "outbox")
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.ErrorContains(t, err, "readonly")
	require.NoError(t, store.Check(t.Context()))
}
