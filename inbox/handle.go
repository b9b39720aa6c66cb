package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/internal/capture"
)

// countTimeout bounds what happens after an attempt that has failed, for which its own context is
// of no use.
const countTimeout = 5 * time.Second

// Handle runs f for a message in a GORM transaction of the consumer's own database, and notes the
// message in the same transaction: its effect happens once, however often the message comes, from
// whom, and how many copies at a time. Events that f raises go to the outbox of that database with
// the same commit, with the message as their cause; see [Message.Context]. All that f does must go
// through tx. The table is made by [Migrate].
//
// f returns the errors of its statements, and leaves the end of the transaction to Handle. An error
// that is swallowed makes the commit fail on PostgreSQL, which counts as a failure. SQLite rolls
// back at some errors (an interrupt, a full disk, RAISE(ROLLBACK)), SQL Server and MySQL at others
// (a deadlock), and what f does after such a one stands alone, and happens again with the next
// attempt. To try a statement that may fail, use a savepoint: tx.Transaction. Statements that commit
// by themselves, as CREATE TABLE does on MySQL, do not belong into f: the message is noted with what
// came before them.
//
// The transaction begins with one statement that wins the message or loses it. A concurrent copy
// waits there until the first one commits, and is a [Duplicate] then, or rolls back, and has its
// own try then. So the outcome without an error is
//
//   - [Handled]: f has run, and the transaction is committed;
//   - [Duplicate]: it had been handled before, f has not run;
//   - [DeadLettered]: it has failed [Message].MaxAttempts times, or with a [Permanent] error, now or
//     before; see [DeadLetters] and [Redrive]. It may be confirmed at the broker: the table has its
//     payload and its last error.
//
// Messages are distinguished by consumer, source and key, so that whoever writes to one stream or
// subscription cannot pass a message off as a copy of another one's. A message under an id that its
// source has used with another type is no copy either: the answer is a permanent [*RefusedError],
// nothing is recorded, and consumers put it among the dead letters of the broker.
//
// When f returns an error or panics, the transaction is rolled back, and the attempt is counted in
// a statement of its own. Then the error is a [*FailedError], which wraps f's, or a [*PanicError];
// at the last attempt, or when the error is [Permanent], the message becomes a dead letter. The
// following are not counted, and the message is tried again for as long as it takes:
//
//   - an error marked by [Unavailable], by f or here: when the transaction cannot begin, or the
//     message cannot be noted, or the failure not be counted;
//   - a lost race between transactions, see [uow.IsConflict], which under REPEATABLE READ and
//     SERIALIZABLE concurrent copies end in, too;
//   - ctx was cancelled: the consumer stops. A ctx whose deadline has passed is different: f took
//     too long, which counts.
//
// A commit whose outcome is unknown, because the connection broke, comes out right: counting a
// failure waits for the transaction to end, and changes nothing about a message that turns out to
// be handled, which is a [Duplicate] then.
//
// Where db is in a transaction already, Handle joins it by a savepoint, and commits nothing: the
// message is handled when the caller commits. Copies wait until then. A failed attempt goes back to
// the savepoint, and is counted in the caller's transaction, too, since any other connection might
// wait for it forever: the count stands if the caller commits in spite of the error, and is lost
// with the rest if it rolls back. In the latter case the consumer's own count ends the attempts: at
// the last one Handle makes a dead letter of the message in the caller's transaction, and where that
// rolls back, too, the consumer forwards the message to the dead letters of the broker.
//
// Handle is safe for concurrent use. It works with and without the capture plugin, with prepared
// statements and with resolvers, where the transaction goes to the primary.
func Handle(ctx context.Context, db *gorm.DB, m *Message, f func(tx *gorm.DB) error, opts ...Option) (Outcome, error) {
	s, statements, err := prepare(db, opts)
	if err != nil {
		return "", Unavailable(err) // the message is not to blame
	}
	if err := checkMessage(m); err != nil {
		return "", err
	}
	if m.Envelope == nil {
		return "", Permanent(fmt.Errorf("inbox: the message %s of %s has no envelope: make messages with Decode", m.Key, m.Source))
	}
	if err := m.checkBudget(); err != nil {
		return "", err
	}
	if f == nil {
		return "", Unavailable(errors.New("inbox: the function that handles the message is nil")) // the message is not to blame
	}
	h := newHandling(s, statements, m, db.WithContext(m.Context(ctx)))
	if err := h.check(); err != nil {
		return "", Unavailable(err)
	}
	if hooks, ok := capture.HooksOf(db); ok {
		h.handle = hooks.Wrap(h.handle) // handles of db.Connection are not captured otherwise
	}
	var outcome Outcome
	if _, joins := h.handle.Statement.ConnPool.(gorm.TxCommitter); joins {
		outcome, err = h.join(ctx, f)
	} else {
		outcome, err = h.own(ctx, f)
		for try := 1; try < deadlockTries && h.begins(ctx, err); try++ {
			outcome, err = h.own(ctx, f)
		}
	}
	if err == nil {
		return outcome, nil
	}
	return h.failed(ctx, err)
}

// deadlockTries bounds how often a statement is tried that the server breaks off.
const deadlockTries = 10

// deadlocked knows the deadlock of MySQL, as its driver writes it. Copies that have waited for one
// which has rolled back are in each other's way there, and the server breaks all but one of them
// off.
func deadlocked(err error) bool { return err != nil && strings.Contains(err.Error(), "Error 1213 ") }

// begins reports whether a transaction is to begin anew.
func (h *handling) begins(ctx context.Context, err error) bool {
	var before beforeError // the handler has not been called
	return h.sql.dialect == mySQL && ctx.Err() == nil && errors.As(err, &before) && deadlocked(err)
}

// handling is one call of Handle.
type handling struct {
	settings

	sql     *statements
	message *Message
	handle  *gorm.DB
	key     string
	// source and kind are the message's source and type as the table has them.
	source, kind string
	omitted      string // see [content]
}

func newHandling(s settings, statements *statements, m *Message, handle *gorm.DB) *handling {
	kind, _ := plain(m.Type).(string)
	return &handling{settings: s, sql: statements, message: m, handle: handle, key: m.Key.String(), source: storedSource(m.Source), kind: kind}
}

func (h *handling) check() error {
	switch {
	case h.handle.Error != nil:
		return fmt.Errorf("inbox: the GORM handle has an error already: %w", h.handle.Error)
	case h.handle.DryRun:
		return errors.New("inbox: the GORM handle is in DryRun mode, in which messages would be noted and nothing done: use another session")
	}
	return nil
}

// beforeError is an error from before f was called: nothing is counted.
type beforeError struct{ error }

func (e beforeError) Unwrap() error { return e.error }

// own runs f in a transaction of its own.
func (h *handling) own(ctx context.Context, f func(*gorm.DB) error) (outcome Outcome, err error) {
	committed := false // as far as we know
	handle, release, err := h.reserve(ctx)
	if err != nil {
		return "", beforeError{fmt.Errorf("inbox: begin a transaction: %w", err)}
	}
	defer func() { release(committed && err != nil) }()
	tx := handle.Begin()
	if tx.Error != nil {
		return "", beforeError{fmt.Errorf("inbox: begin a transaction: %w", tx.Error)}
	}
	defer func() {
		if !committed { // also where f ends the goroutine
			tx.Rollback() // the driver's error would hide the cause, and a connection that cannot roll back is closed
		}
	}()
	if outcome, err = h.win(ctx, tx); err != nil || outcome != Handled {
		return outcome, err
	}
	if err := call(f, tx); err != nil {
		return "", err
	}
	committed = true
	if err := call(func(tx *gorm.DB) error { return tx.Commit().Error }, tx); err != nil { // what the application runs after a commit may panic, too
		tx.Rollback() // what did not get as far as the database
		return "", fmt.Errorf("inbox: commit: %w", err)
	}
	return Handled, nil
}

// savepoints have a name each: after one of the same name was set, no rollback would find the
// first.
var savepoints atomic.Uint64

// join runs f in the transaction that the handle is in.
func (h *handling) join(ctx context.Context, f func(*gorm.DB) error) (outcome Outcome, err error) {
	name := "fanout_inbox_" + strconv.FormatUint(savepoints.Add(1), 10)
	if err := h.handle.Session(&gorm.Session{}).SavePoint(name).Error; err != nil {
		return "", beforeError{fmt.Errorf("inbox: set a savepoint: %w", err)}
	}
	kept := false
	defer func() {
		if kept {
			return
		}
		ctx, cancel := detached(ctx)
		defer cancel()
		if back := h.handle.WithContext(ctx).RollbackTo(name).Error; back != nil {
			// What f has done is still in the caller's transaction.
			err = errors.Join(beforeError{fmt.Errorf("inbox: go back to the savepoint: %w: roll back the transaction", back)}, err)
		}
	}()
	if outcome, err = h.win(ctx, h.handle); err != nil || outcome != Handled {
		kept = err == nil
		return outcome, err
	}
	if err := call(f, h.handle); err != nil {
		return "", err
	}
	kept = true
	return Handled, nil
}

// detached is a context for what must be done although the attempt's own has ended.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), countTimeout)
}

// call makes an error of a panic.
func call(f func(*gorm.DB) error, tx *gorm.DB) (err error) {
	returned := false
	defer func() {
		if value := recover(); !returned { // value is nil with GODEBUG=panicnil=1
			err = &PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	err = f(tx)
	returned = true
	return sound(err)
}

// conn is what statements are sent on: a pool or a transaction. GORM's own processing of raw SQL is
// not needed for them.
type conn interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// win tries to win the message: Handled, if it is ours to handle.
func (h *handling) win(ctx context.Context, tx *gorm.DB) (Outcome, error) {
	outcome, err := h.claim(ctx, tx.Statement.ConnPool)
	if refused(err) {
		return "", err
	}
	if err != nil {
		return "", beforeError{fmt.Errorf("inbox: note the message in %s: %w", h.table, explain(err))}
	}
	return outcome, nil
}

func (h *handling) claim(ctx context.Context, on conn) (Outcome, error) {
	claim, args := h.sql.claim, []any{h.message.Consumer, h.key, plain(h.message.Type), h.source}
	if h.byToken {
		claim = h.sql.claimToken
	}
	if h.sql.dialect == sqlServer { // the claim selects the answer
		return h.lost(ctx, on, claim, args)
	}
	result, err := on.ExecContext(ctx, claim.text, claim.args(args)...)
	if err != nil {
		return "", err
	}
	if won, err := h.won(result); err != nil || won {
		return Handled, err
	}
	return h.lost(ctx, on, h.sql.look, []any{h.message.Consumer, h.key, h.source})
}

// won reports whether a claim has found the message free: then it has written its row. MySQL counts
// an insert, and a row that stays as it is, alike where the DSN says clientFoundRows=true, so there
// the claim says so itself.
func (h *handling) won(result sql.Result) (bool, error) {
	if h.sql.dialect == mySQL && !h.byToken {
		answer, err := result.LastInsertId()
		return answer == 1, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

// lost reads what is recorded of a message that is not ours to handle.
func (h *handling) lost(ctx context.Context, on conn, look statement, args []any) (Outcome, error) {
	var status, kind, source string
	found, err := queryOne(ctx, on, look, args, &status, &kind, &source)
	if err != nil || status == "won" {
		return Handled, err
	}
	if elsewhere := found && source != h.source; elsewhere && !h.byToken {
		found, status = false, "" // ids of other sources are others
	} else if elsewhere || kind != "" && kind != h.kind {
		return "", &RefusedError{Key: h.message.Key, Type: h.kind, Source: h.source, RecordedType: kind, RecordedSource: source}
	}
	switch {
	case !found && h.byToken, status == statusHandled:
		return Duplicate, nil
	case status == statusDeadLetter:
		return DeadLettered, nil
	default: // it was removed, or redriven, a moment ago: whoever said that it is handled would lose it
		return "", fmt.Errorf("the message has become %q meanwhile: the next attempt tells", status)
	}
}

// queryOne reads the first row of an answer, where there is one.
func queryOne(ctx context.Context, on conn, s statement, args []any, to ...any) (found bool, err error) {
	rows, err := on.QueryContext(ctx, s.text, s.args(args)...)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if rows.Next() {
		found = true
		err = rows.Scan(to...)
	}
	return found, errors.Join(err, rows.Err())
}
