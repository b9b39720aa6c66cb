package gormplugin_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// spy stands between database/sql and a driver, and writes down what reaches the driver.
type spy struct {
	inner driver.Driver
	dsn   string
	seen  []string // "BEGIN", "COMMIT", "PREPARE INSERT commit_rows", "INSERT commit_rows"
}

// openSpied opens one connection through a spy. driverName is that of a driver that is registered.
func openSpied(t testing.TB, driverName, dsn string) (*sql.DB, *spy) {
	t.Helper()
	original, err := sql.Open(driverName, dsn)
	require.NoError(t, err)
	defer original.Close() // only to get at the driver: nothing was connected
	s := &spy{inner: original.Driver(), dsn: dsn}
	pool := sql.OpenDB(s)
	pool.SetMaxOpenConns(1)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	return pool, s
}

// during returns what reached the driver while f ran.
func (s *spy) during(f func()) []string {
	s.seen = []string{}
	f()
	return s.seen
}

func (s *spy) note(what string) { s.seen = append(s.seen, what) }

func (s *spy) Driver() driver.Driver { return s.inner }

func (s *spy) Connect(context.Context) (driver.Conn, error) {
	conn, err := s.inner.Open(s.dsn)
	if err != nil {
		return nil, err
	}
	return &spyConn{Conn: conn, spy: s}, nil
}

type spyConn struct {
	driver.Conn

	spy *spy
}

func (c *spyConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	c.spy.note("BEGIN")
	inner, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, options)
	return &spyTx{Tx: inner, spy: c.spy}, err
}

func (c *spyConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.spy.note(brief(query))
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c *spyConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.spy.note(brief(query))
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c *spyConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c.spy.note("PREPARE " + brief(query))
	inner, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	return &spyStmt{Stmt: inner, spy: c.spy, query: query}, err
}

// CheckNamedValue leaves the values to the driver, where it wants to see them.
func (c *spyConn) CheckNamedValue(value *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(value)
	}
	return driver.ErrSkip
}

type spyStmt struct {
	driver.Stmt

	spy   *spy
	query string
}

func (s *spyStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	s.spy.note(brief(s.query))
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

func (s *spyStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	s.spy.note(brief(s.query))
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

type spyTx struct {
	driver.Tx

	spy *spy
}

func (t *spyTx) Commit() error {
	t.spy.note("COMMIT")
	return t.Tx.Commit()
}

func (t *spyTx) Rollback() error {
	t.spy.note("ROLLBACK")
	return t.Tx.Rollback()
}

// brief is the verb and the table of an INSERT, the verb of everything else, so that every
// statement leaves a trace.
func brief(query string) string {
	words := strings.Fields(query)
	if len(words) >= 3 && words[0] == "INSERT" {
		return "INSERT " + strings.Trim(words[2], "`\"")
	}
	return words[0]
}
