package mysql

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/schemacheck/schematest"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// Each small change of an expression is noticed.
func TestCheckMutants(t *testing.T) {
	t.Parallel()
	store := newStore(t, openDB(t, testenv.MySQL(t)), "outbox")
	want, err := store.wanted()
	require.NoError(t, err)
	schematest.Mutants(t, store.evaluation(), want, `COALESCE\(LENGTH\(\w+\), (01|10)\)|, 256\), 10\)`)
}
