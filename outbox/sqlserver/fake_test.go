package sqlserver

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"io"
	"sync"
	"testing"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a server that answers as it is told, in the way of go-mssqldb: the result sets of a batch
// follow each other, and an error stands behind the last row.
type fake struct {
	answer func(request) reply

	mu       sync.Mutex
	requests []request
	opened   int
	closed   int
}

type request struct {
	text string
	args map[string]any
}

type reply struct {
	sets []set
	err  error
}

type set struct {
	columns []string
	rows    [][]sqldriver.Value
}

// count is a result set of one number.
func count(name string, n int64) set {
	return set{columns: []string{name}, rows: [][]sqldriver.Value{{n}}}
}

func serverError(number int32) error {
	return mssql.Error{Number: number, Message: "said the server"}
}

// inTurn answers requests one after the other.
func inTurn(replies ...reply) func(request) reply {
	var (
		mu   sync.Mutex
		next int
	)
	return func(request) reply {
		mu.Lock()
		defer mu.Unlock()
		if next == len(replies) {
			return reply{err: errors.New("one request too many")}
		}
		next++
		return replies[next-1]
	}
}

func newFake(t *testing.T, table string, answer func(request) reply) (*Store, *fake) {
	t.Helper()
	server := &fake{answer: answer}
	db := sql.OpenDB(server)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	store, err := New(db, table)
	require.NoError(t, err)
	return store, server
}

func (f *fake) texts() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	texts := make([]string, len(f.requests))
	for i, r := range f.requests {
		texts[i] = r.text
	}
	return texts
}

func (f *fake) Connect(context.Context) (sqldriver.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened++
	return &fakeConn{server: f}, nil
}

func (*fake) Driver() sqldriver.Driver { return nil }

type fakeConn struct{ server *fake }

func (*fakeConn) Prepare(string) (sqldriver.Stmt, error)      { return nil, errors.ErrUnsupported }
func (*fakeConn) Begin() (sqldriver.Tx, error)                { return nil, errors.ErrUnsupported }
func (*fakeConn) CheckNamedValue(*sqldriver.NamedValue) error { return nil } // go-mssqldb, too, takes values as they are
func (c *fakeConn) record(r request)                          { c.server.requests = append(c.server.requests, r) }
func (c *fakeConn) Commit() error                             { return c.note("COMMIT") }
func (c *fakeConn) Rollback() error                           { return c.note("ROLLBACK") }
func (c *fakeConn) BeginTx(context.Context, sqldriver.TxOptions) (sqldriver.Tx, error) {
	return c, c.note("BEGIN")
}

func (c *fakeConn) note(text string) error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.record(request{text: text})
	return nil
}

func (c *fakeConn) Close() error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.server.closed++
	return nil
}

func (c *fakeConn) ask(ctx context.Context, text string, args []sqldriver.NamedValue) reply {
	if ctx.Err() != nil {
		return reply{err: ctx.Err()}
	}
	r := request{text: text, args: map[string]any{}}
	for _, arg := range args {
		r.args[arg.Name] = arg.Value
	}
	c.server.mu.Lock()
	c.record(r)
	c.server.mu.Unlock()
	return c.server.answer(r)
}

func (c *fakeConn) QueryContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	answer := c.ask(ctx, text, args)
	if len(answer.sets) == 0 && answer.err != nil {
		return nil, answer.err
	}
	return &fakeRows{reply: answer}, nil
}

func (c *fakeConn) ExecContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	return sqldriver.RowsAffected(0), c.ask(ctx, text, args).err
}

type fakeRows struct {
	reply
	row int
}

func (r *fakeRows) Columns() []string {
	if len(r.sets) == 0 {
		return nil
	}
	return r.sets[0].columns
}

func (*fakeRows) Close() error { return nil }

func (r *fakeRows) Next(dest []sqldriver.Value) error {
	if len(r.sets) > 0 && r.row < len(r.sets[0].rows) {
		copy(dest, r.sets[0].rows[r.row])
		r.row++
		return nil
	}
	if len(r.sets) <= 1 && r.err != nil {
		return r.err
	}
	return io.EOF
}

func (r *fakeRows) HasNextResultSet() bool { return len(r.sets) > 1 }

func (r *fakeRows) NextResultSet() error {
	if len(r.sets) <= 1 {
		return io.EOF
	}
	r.sets, r.row = r.sets[1:], 0
	return nil
}
