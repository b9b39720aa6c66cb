package gormplugin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/internal/journal"
	"github.com/gorm-fanout/fanout/internal/transaction"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
)

// tx is a transaction that writes its events when it commits. It has no BeginTx: GORM would take it
// for a pool.
type tx struct {
	gorm.Tx // the transaction that was begun

	ctx      context.Context //nolint:containedctx // database/sql ties a transaction to the context it was begun with
	plugin   *Plugin
	inserter *outbox.Inserter
	parent   gorm.GetDBConnector
	journal  journal.Journal
	notifier *wakeup.Notifier // nil: no one is notified
	attempt  *journal.Attempt // nil unless a uow.Do may repeat it
	kept     *keptConn        // on SQLite, where the connection is known
	course   course
	promised atomic.Bool // functions are to run after the commit
	over     atomic.Bool // no sync.Once: what runs after the commit may try to roll back
}

var _ gorm.Tx = (*tx)(nil)

func newTx(ctx context.Context, inner gorm.Tx, plugin *Plugin, inserter *outbox.Inserter, parent gorm.GetDBConnector) *tx {
	t := &tx{Tx: inner, ctx: ctx, plugin: plugin, inserter: inserter, parent: parent, attempt: journal.AttemptOf(ctx)}
	if p, ok := parent.(*pool); ok {
		t.notifier = p.notifier
	} else {
		t.notifier = plugin.notifierOf(nil, inserter)
	}
	t.journal.Begin(t.attempt != nil)
	return t
}

// ExecContext watches for savepoints, which GORM and applications set as plain SQL.
func (t *tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	result, err := t.Tx.ExecContext(ctx, query, args...)
	t.follow(ctx, query, err)
	return result, err
}

// follow notes what a text has done to the transaction; err is the result.
func (t *tx) follow(ctx context.Context, text string, err error) {
	if err != nil {
		t.course.fail(err)
	}
	t.course.follow(ctx, t.inserter.Dialect(), &t.journal, text, err)
}

// QueryContext watches for transaction control, too.
func (t *tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	t.course.doubt(t.inserter.Dialect(), query)
	rows, err := t.Tx.QueryContext(ctx, query, args...)
	if err != nil {
		t.course.fail(err)
	}
	return rows, err
}

// QueryRowContext watches for transaction control, too.
func (t *tx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	t.course.doubt(t.inserter.Dialect(), query)
	row := t.Tx.QueryRowContext(ctx, query, args...)
	if err := row.Err(); err != nil {
		t.course.fail(err)
	}
	return row
}

// PrepareContext watches for transaction control, too.
func (t *tx) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	statement, err := t.Tx.PrepareContext(ctx, query)
	if err == nil {
		t.course.prepare(t.inserter.Dialect(), query)
	}
	return statement, err
}

// StmtContext watches for transaction control, too.
func (t *tx) StmtContext(ctx context.Context, statement *sql.Stmt) *sql.Stmt {
	t.course.prepare(t.inserter.Dialect(), textOf(statement))
	return t.Tx.StmtContext(ctx, statement)
}

// refusal is why these events cannot be written, or nil.
func (t *tx) refusal(flush []journal.Flush) error {
	if err := t.journal.Err(); err != nil {
		return err
	}
	if len(flush) == 0 && !t.promised.Load() {
		return nil
	}
	return t.course.refusal()
}

// Commit writes the rows of everything that was raised, commits, and then clears the events. When
// it cannot write, it rolls back itself: a caller that sees Commit fail does not.
func (t *tx) Commit() error {
	if !t.over.CompareAndSwap(false, true) {
		return sql.ErrTxDone
	}
	t.journal.End()
	return t.commit()
}

func (t *tx) commit() error {
	done := false
	defer func() {
		if !done { // a panic on the way must not leak the connection
			_ = t.undo()
			t.journal.RolledBack()
		}
	}()
	flush, err := t.journal.Collect(true)
	if err == nil {
		err = t.refusal(flush)
	}
	if err == nil && len(flush) > 0 {
		err = t.course.checkOpen(t.ctx, t.inserter.Dialect(), t.Tx)
	}
	var wakeUps []wakeup.WakeUp
	if err == nil {
		wakeUps, err = t.plugin.write(t.ctx, t.inserter, t.Tx, flush, t)
	}
	left, doubt := t.journal.Left(flush)
	switch {
	case err != nil:
	case doubt != nil:
		err = doubt
	case t.plugin.strict && len(left) > 0:
		err = &PendingError{Aggregates: left}
	}
	done = true
	if err != nil {
		defer t.journal.RolledBack()
		if rollbackErr := t.undo(); rollbackErr != nil && !errors.Is(rollbackErr, sql.ErrTxDone) {
			err = errors.Join(err, fmt.Errorf("gormplugin: roll back: %w", rollbackErr))
		}
		return err
	}
	if err := t.finish(); err != nil {
		t.watchCommit(flush, err)
		t.journal.RolledBack()
		return err // the events stay; their ids are fixed, so that a repeated transaction writes the same rows
	}
	after := t.journal.Committed(flush)
	defer runAll(after) // whatever a listener or the log does
	if len(wakeUps) > 0 {
		t.plugin.committed(wakeUps, t.notifier)
	}
	t.warn(flush, left)
	return nil
}

// warn tells of events that a commit has left behind, and of those that were sent once although
// they were raised more than once.
func (t *tx) warn(flush []journal.Flush, left map[string]int) {
	for name, n := range left {
		t.plugin.left.Add(int64(n))
		t.plugin.log.WarnContext(t.ctx, "events left pending: no row of their aggregate changed", "aggregate", name, "events", n)
	}
	for i := range flush {
		if f := &flush[i]; f.Replaced() > 0 {
			t.plugin.again.Add(int64(f.Replaced()))
			t.plugin.log.WarnContext(t.ctx, "event raised again after a rollback: sent once",
				"aggregate", f.Source.Aggregate, "event", fmt.Sprintf("%T", f.Data), "message_id", f.ID)
		}
	}
}

// runAll runs functions in turn. One that panics does not keep the rest from running; then its
// panic goes on.
func runAll(functions []func()) {
	for i, f := range functions {
		done := false
		func() {
			defer func() {
				if !done {
					runAll(functions[i+1:])
				}
			}()
			f()
			done = true
		}()
	}
}

// touch tells a unit of work that may be repeated which aggregates it has to rewind.
func (t *tx) touch(aggregates []found) {
	if t.attempt == nil {
		return
	}
	for i := range aggregates {
		t.attempt.Touch(aggregates[i].recorder)
	}
}

// Rollback drops the journal with the transaction; the events stay with their aggregates.
func (t *tx) Rollback() error {
	if !t.over.CompareAndSwap(false, true) {
		return sql.ErrTxDone
	}
	t.journal.End()
	defer t.journal.RolledBack()
	return t.undo()
}

// GetDBConn implements gorm.GetDBConnector.
func (t *tx) GetDBConn() (*sql.DB, error) {
	if t.parent == nil {
		return nil, gorm.ErrInvalidDB
	}
	return t.parent.GetDBConn()
}

// transactionOf finds our transaction behind a statement's connection, or else the foreign one that
// it runs in. Both are nil outside a transaction.
func transactionOf(conn gorm.ConnPool) (ours *tx, foreign gorm.Tx) {
	for {
		switch c := conn.(type) {
		case *tx:
			return c, nil
		case *gorm.PreparedStmtTX:
			conn = c.Tx
		case *throughTx:
			conn = c.inner
		case gorm.Tx:
			return nil, c
		default:
			return nil, nil
		}
	}
}

// CapturesEvents implements transaction.Captured, by which an outbox.Writer refuses it.
func (*tx) CapturesEvents() {}

// SQLTx returns the *sql.Tx behind a GORM transaction. With the plugin on the handle, the assertion
// tx.Statement.ConnPool.(*sql.Tx) no longer holds; use this instead. ok is false outside a
// transaction. An outbox.Writer refuses it: raise events, or use uow.Publish.
func SQLTx(db *gorm.DB) (sqlTx *sql.Tx, ok bool) {
	ours, foreign := transactionOf(db.Statement.ConnPool)
	if ours != nil {
		foreign = ours.Tx
	}
	sqlTx, ok = foreign.(*sql.Tx)
	if ok && ours != nil {
		transaction.Lend(sqlTx)
	}
	return sqlTx, ok
}
