package transaction

import (
	"context"
	"database/sql"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	_ "github.com/glebarez/go-sqlite"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func begin(t *testing.T) *sql.Tx {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "a.db"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	return tx
}

type (
	captured struct{ *sql.Tx }
	hidden   struct{ tx *sql.Tx }
	two      struct{ A, B *sql.Tx }
	inField  struct { // as gorm.PreparedStmtTX and sqlx.Tx
		Tx    interface{ Commit() error }
		Cache *sync.Map
		Name  string
	}
	itself struct{ Tx interface{ Commit() error } }
	ofPgx  struct{ Tx pgxTx }
	pgxTx  interface {
		Commit(ctx context.Context) error
	}
	named string
)

func (captured) CapturesEvents()            {}
func (h hidden) Wrapped() any               { return h.tx }
func (*inField) Commit() error              { return nil }
func (*itself) Commit() error               { return nil }
func (*ofPgx) Commit(context.Context) error { return nil }

func TestInnermost(t *testing.T) {
	t.Parallel()
	tx := begin(t)
	ours := captured{tx}
	loop := &itself{}
	loop.Tx = loop
	pgx := &ofPgx{}
	both := two{tx, begin(t)}
	for name, c := range map[string]struct{ given, want any }{
		"nothing":         {nil, nil},
		"itself":          {tx, tx},
		"no struct":       {named("tx"), named("tx")},
		"embedded":        {struct{ *sql.Tx }{tx}, tx},
		"a pointer to it": {&struct{ *sql.Tx }{tx}, tx},
		"in two":          {&inField{Tx: &inField{Tx: tx}}, tx},
		"by a method":     {hidden{tx}, tx},
		"empty":           {inField{}, inField{}},
		"one of two":      {both, both},
		"nil":             {&struct{ *sql.Tx }{}, &struct{ *sql.Tx }{}},
		"captured":        {&inField{Tx: ours}, ours},
		"a loop":          {loop, loop},
		"of pgx":          {ofPgx{pgx}, pgx},
	} {
		assert.Equal(t, c.want, Innermost(c.given), name)
	}
}

func TestIsCaptured(t *testing.T) {
	t.Parallel()
	tx, other := begin(t), begin(t)
	assert.True(t, IsCaptured(captured{tx}))
	assert.False(t, IsCaptured(tx))
	Lend(tx)
	Lend(tx)
	assert.True(t, IsCaptured(tx))
	assert.False(t, IsCaptured(other))
	assert.False(t, IsCaptured(nil))
}

var global struct{ n int }

// Each transaction has a mark of its own, which goes with it.
func TestMarks(t *testing.T) {
	t.Parallel()
	var marks Marks[int]
	type held struct{ _ *sql.Tx }
	a, b := &held{}, &held{}
	*marks.Of(a)++
	*marks.Of(a)++
	*marks.Of(b)++
	assert.Equal(t, 2, *marks.Of(a))
	assert.Equal(t, 1, *marks.Of(b))
	*marks.Of(&global)++
	assert.Equal(t, 1, *marks.Of(&global), "what is in no heap")
	for _, without := range []any{nil, named("tx"), held{}, (*held)(nil), &struct{}{}} {
		*marks.Of(without)++
		assert.Zero(t, *marks.Of(without))
	}
	runtime.KeepAlive(a)
	runtime.KeepAlive(b)

	for range 1000 {
		*marks.Of(&held{})++
	}
	require.Eventually(t, func() bool {
		runtime.GC()
		return marks.Len() <= 3
	}, time.Minute, time.Millisecond, "marks of transactions that are gone")
}
