package gormplugin_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
)

// discard is a database that takes everything and does nothing, in no time: what is left is the
// cost of the way to it.
type discard struct{}

var (
	_ driver.Connector         = discard{}
	_ driver.ExecerContext     = discard{}
	_ driver.ConnBeginTx       = discard{}
	_ driver.NamedValueChecker = discard{}
)

func (d discard) Connect(context.Context) (driver.Conn, error)                 { return d, nil }
func (d discard) Driver() driver.Driver                                        { return nil }
func (d discard) Prepare(string) (driver.Stmt, error)                          { return nil, driver.ErrSkip }
func (d discard) Close() error                                                 { return nil }
func (d discard) Begin() (driver.Tx, error)                                    { return d, nil }
func (d discard) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return d, nil }
func (d discard) Commit() error                                                { return nil }
func (d discard) Rollback() error                                              { return nil }
func (d discard) CheckNamedValue(*driver.NamedValue) error                     { return nil }
func (d discard) ExecContext(_ context.Context, _ string, args []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(len(args)), nil // at least one per row, so that no batch looks incomplete
}

// discarding returns GORM's driver for PostgreSQL on such a database.
func discarding(t testing.TB) gorm.Dialector {
	t.Helper()
	pool := sql.OpenDB(discard{})
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	return postgres.New(postgres.Config{Conn: pool, WithoutReturning: true})
}
