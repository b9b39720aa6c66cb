package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/schemacheck/schematest"
)

// Each small change of an expression is noticed.
func TestCheckMutants(t *testing.T) {
	t.Parallel()
	store, err := New(openDB(t, filepath.Join(t.TempDir(), "outbox.db")), "outbox")
	require.NoError(t, err)
	want, err := store.wanted()
	require.NoError(t, err)
	schematest.Mutants(t, store.evaluation(), want, `coalesce\(\w+, (01|10)\)`)
}
