package sqltx_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/glebarez/go-sqlite"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/sqltx"
)

// open opens an empty database with a table t.
func open(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "a.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = db.ExecContext(t.Context(), "CREATE TABLE t (n INTEGER)")
	require.NoError(t, err)
	return db
}

func rows(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM t").Scan(&n))
	return n
}

func insert(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO t VALUES (1)")
	return err
}

func TestRun(t *testing.T) {
	t.Parallel()
	db := open(t)
	wrong := errors.New("wrong")
	require.ErrorIs(t, sqltx.Run(t.Context(), db, nil, func(tx *sql.Tx) error {
		return errors.Join(insert(t.Context(), tx), wrong)
	}), wrong)
	assert.Zero(t, rows(t, db))
	assert.PanicsWithError(t, "wrong", func() {
		_ = sqltx.Run(t.Context(), db, nil, func(tx *sql.Tx) error { panic(errors.Join(insert(t.Context(), tx), wrong)) })
	})
	assert.Zero(t, rows(t, db))
	require.NoError(t, sqltx.Run(t.Context(), db, nil, func(tx *sql.Tx) error { return insert(t.Context(), tx) }))
	assert.Equal(t, 1, rows(t, db))
}

// rolledBack waits until database/sql has rolled tx back by itself.
func rolledBack(t *testing.T, tx *sql.Tx) error {
	t.Helper()
	var err error
	require.Eventually(t, func() bool {
		_, err = tx.ExecContext(t.Context(), "SELECT 1")
		return errors.Is(err, sql.ErrTxDone)
	}, 20*time.Second, time.Millisecond)
	return err
}

func TestRunSaysWhyATransactionEnded(t *testing.T) {
	t.Parallel()
	for name, keep := range map[string]bool{"in a statement": true, "at the commit": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			err := sqltx.Run(ctx, db, nil, func(tx *sql.Tx) error {
				cancel()
				if err := rolledBack(t, tx); keep {
					return err
				}
				return nil
			})
			require.Equal(t, context.Canceled, err)
			assert.Zero(t, rows(t, db))
		})
	}
}

// Who ends the transaction by hand is told so.
func TestRunOfAnEndedTransaction(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, sqltx.Run(t.Context(), open(t), nil, (*sql.Tx).Rollback), sql.ErrTxDone)
}
