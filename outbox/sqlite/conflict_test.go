package sqlite_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"

	_ "github.com/glebarez/go-sqlite"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/uow"
)

// code and cgoError have the shape of the errors of mattn/go-sqlite3, which needs cgo.
type code int

type cgoError struct{ Code code }

func (e cgoError) Error() string { return fmt.Sprint(e.Code) }

// Both drivers of SQLite tell a unit of work that it can be repeated.
func TestConflicts(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "busy.db")+"?_txlock=immediate")
	require.NoError(t, err)
	defer db.Close()
	first, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = db.BeginTx(t.Context(), nil)
	require.Error(t, err)
	assert.True(t, uow.IsConflict(fmt.Errorf("begin: %w", err)), err)
	require.NoError(t, first.Rollback())

	assert.True(t, uow.IsConflict(cgoError{5}))
	assert.True(t, uow.IsConflict(&cgoError{5 | 2<<8}), "SQLITE_BUSY_SNAPSHOT")
	assert.False(t, uow.IsConflict(cgoError{19}))
	assert.False(t, uow.IsConflict((*cgoError)(nil)))
}
