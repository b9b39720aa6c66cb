package gormplugin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/journal"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// written raises events on n aggregates, and returns them as a transaction would write them.
func written(n int) (orders []flushOrder, flush []journal.Flush) {
	orders = make([]flushOrder, n)
	for i := range orders {
		orders[i].Raise(flushed{fmt.Sprint(i)})
		recorder, _ := journal.RecorderOf(reflect.ValueOf(&orders[i]).Elem())
		flush = append(flush, journal.Flush{Raised: recorder.Events()[0]})
	}
	return orders, flush
}

func openPool(t *testing.T) *sql.DB {
	t.Helper()
	pool, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "x.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	return pool
}

// What waits for the end of a transaction keeps neither its aggregates nor an unlimited number of
// events.
func TestWatchingIsBounded(t *testing.T) {
	t.Parallel()
	inserter, err := outbox.NewInserter(outbox.SQLite, "outbox_messages")
	require.NoError(t, err)
	pool := openPool(t)
	tx, err := pool.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	var o outcomes
	orders, flush := written(maxWatched + 10)
	o.watch(flush[:maxWatched-5], tx, pool, inserter)
	o.watch(flush, tx, pool, inserter)
	assert.Equal(t, maxWatched, o.watched)
	assert.Len(t, o.unseen, 1, "one transaction")
	runtime.KeepAlive(orders)
	runtime.KeepAlive(flush)

	first := weak.Make(&orders[0])
	orders, flush = nil, nil //nolint:wastedassign // the application has let go of them
	require.Eventually(t, func() bool { runtime.GC(); return first.Value() == nil }, time.Minute, time.Millisecond)
	require.NoError(t, tx.Rollback())
	o.looking.Lock()
	over := o.lookAfter(t.Context(), o.unseen[0])
	o.looking.Unlock()
	assert.True(t, over, "without asking a database that has no such table")
	assert.Zero(t, o.watched)
}

// A table that cannot be read, and one in which nothing appears, are given up.
func TestLooksAreBounded(t *testing.T) {
	t.Parallel()
	inserter, err := outbox.NewInserter(outbox.SQLite, "outbox_messages")
	require.NoError(t, err)
	var o outcomes
	orders, flush := written(1)
	o.watch(flush, nil, openPool(t), inserter)
	for range looks {
		assert.EqualValues(t, 1, o.waiting.Load())
		o.lookNow(t.Context())
	}
	assert.Zero(t, o.waiting.Load())
	assert.Len(t, uow.Pending(&orders[0]), 1)
}

// A transaction in progress is left alone, for a while.
func TestATransactionIsNotWaitedForForever(t *testing.T) {
	t.Parallel()
	pool := openPool(t)
	for name, end := range map[string]func(*sql.Tx) error{"commit": (*sql.Tx).Commit, "rollback": (*sql.Tx).Rollback} {
		tx, err := pool.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		assert.False(t, hasEnded(t.Context(), tx), name)
		_, err = tx.ExecContext(t.Context(), "SELECT 1")
		require.NoError(t, err, "it goes on: %s", name)
		var o outcomes
		assert.False(t, o.lookAfter(t.Context(), &unseen{tx: tx, since: time.Now()}), name)
		assert.True(t, o.lookAfter(t.Context(), &unseen{tx: tx, since: time.Now().Add(-2 * longestWatch)}), name)
		require.NoError(t, end(tx))
		assert.True(t, hasEnded(t.Context(), tx), name)
	}
	ctx, cancel := context.WithCancel(t.Context())
	tx, err := pool.BeginTx(ctx, nil)
	require.NoError(t, err)
	cancel()
	assert.Eventually(t, func() bool { return hasEnded(t.Context(), tx) }, 30*time.Second, time.Millisecond)
}

// An answer of the database is none, after which nobody knows.
type (
	stateError  string
	numberError int32
	codeError   int
)

func (e stateError) Error() string          { return string(e) }
func (e stateError) SQLState() string       { return string(e) }
func (e numberError) Error() string         { return fmt.Sprint(int32(e)) }
func (e numberError) SQLErrorNumber() int32 { return int32(e) }
func (e codeError) Error() string           { return fmt.Sprint(int(e)) }
func (e codeError) Code() int               { return int(e) }

func TestRefusedCommits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want bool
	}{
		{stateError("40001"), true},
		{stateError("23503"), true},
		{fmt.Errorf("commit: %w", stateError("23503")), true},
		{stateError("08006"), false},
		{stateError("40003"), false},
		{stateError("57P01"), false},
		{stateError("57014"), true},
		{stateError(""), false},
		{numberError(1205), true},
		{codeError(5), true},
		{codeError(787), true},
		{codeError(10), false},
		{sql.ErrTxDone, true},
		{context.Canceled, false},
		{errors.New("connection reset by peer"), false},
	} {
		assert.Equal(t, c.want, refused(c.err), c.err)
	}
}
