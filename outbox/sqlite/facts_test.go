package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/schemacheck/schematest"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// Each small change of an expression is noticed.
func TestCheckMutants(t *testing.T) {
	testenv.NeedLong(t)
	t.Parallel()
	testenv.OneStepAtATime(t)
	store, err := New(openDB(t, filepath.Join(t.TempDir(), "outbox.db")), "outbox")
	require.NoError(t, err)
	want, err := store.wanted(1)
	require.NoError(t, err)
	schematest.Mutants(t, store.evaluation(), want, `coalesce\(\w+, (01|10)\)`)
}

// The check writes nothing: a connection that may not write can do it, also where everything has to
// be evaluated.
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
