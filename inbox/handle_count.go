package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/uow"
)

// maxErrorText cuts what the table keeps of an error.
const maxErrorText = 4096

// The classes of a [LastError].
const (
	// ClassError is any error of the handler.
	ClassError = "error"
	// ClassPermanent is one marked by [Permanent].
	ClassPermanent = "permanent"
	// ClassPanic is a [*PanicError].
	ClassPanic = "panic"
	// ClassTimeout is a handler that had not ended when its time was over.
	ClassTimeout = "timeout"
)

// LastError is why an attempt failed.
type LastError struct {
	// Class is "error", "permanent", "panic" or "timeout".
	Class string `json:"class"`
	// Message is the error's text, cut at 4 KiB.
	Message string `json:"message"`
}

// failed judges an attempt, and counts it where it counts.
func (h *handling) failed(ctx context.Context, err error) (Outcome, error) {
	var before beforeError
	switch {
	case refused(err):
		return "", Permanent(err)
	case uow.IsConflict(err), IsUnavailable(err):
		return "", err
	case errors.As(err, &before):
		return "", Unavailable(err)
	case errors.Is(ctx.Err(), context.Canceled):
		return "", Unavailable(errors.Join(fmt.Errorf("inbox: the attempt was broken off: %w", context.Cause(ctx)), err))
	}
	if ctx.Err() != nil { // the cause says how long it may take
		err = errors.Join(context.Cause(ctx), err)
	}
	after, cancel := detached(ctx)
	defer cancel()
	limit := h.message.maxAttempts()
	if IsPermanent(err) || isLast(ctx, h.message) {
		limit = 0
	}
	outcome, attempts, problem := h.count(after, h.outside(), describe(ctx, err), 1, limit)
	switch {
	case refused(problem):
		return "", Permanent(problem)
	case problem != nil:
		return "", Unavailable(errors.Join(err, fmt.Errorf("inbox: count the failed attempt in %s: %w", h.table, problem)))
	case outcome == "":
		return "", &FailedError{Attempts: attempts, Max: limit, Err: err}
	case outcome == DeadLettered:
		tellWhy(ctx, h.why(err))
	}
	return outcome, nil
}

// outside is where what follows a failed attempt is sent.
func (h *handling) outside() conn { return outside(h.handle) }

// outside is the pool of a handle, or the transaction that it is in. Prepared statements are not
// used on the way: their cache can make a small pool wait for itself
// (https://github.com/go-gorm/gorm/issues/7465).
func outside(db *gorm.DB) conn {
	switch c := db.Statement.ConnPool.(type) {
	case *gorm.PreparedStmtDB:
		return c.ConnPool
	case *gorm.PreparedStmtTX:
		return c.Tx
	default:
		return c
	}
}

// count adds charge to the failed attempts of a message, and rejects it where that makes limit.
// Without an outcome it is to be tried again.
func (h *handling) count(ctx context.Context, on conn, why LastError, charge, limit int) (outcome Outcome, attempts int, err error) {
	count := h.sql.count
	if h.byToken {
		count = h.sql.countToken
	}
	m := h.message
	kept, err := h.content(ctx, on)
	if err != nil {
		return "", 0, err
	}
	if h.omitted = kept.omitted; h.omitted != "" {
		why.Message = cut(h.omitted+": "+why.Message, maxErrorText)
	}
	text, err := json.Marshal(why)
	if err != nil {
		return "", 0, err
	}
	args := []any{m.Consumer, h.key, plain(m.Type), h.source, string(text), kept.attributes, kept.payload, charge, limit}
	var (
		found  bool
		status string
	)
	if h.sql.dialect == mySQL {
		found, status, attempts, err = reported(ctx, on, count, args)
	} else {
		found, err = queryOne(ctx, on, count, args, &status, &attempts)
	}
	switch {
	case err != nil:
		return "", 0, err
	case status == statusDeadLetter:
		return DeadLettered, attempts, nil
	case found:
		return "", attempts, nil
	}
	// A copy has been handled meanwhile, or has become a dead letter; or the row is gone, as a
	// token goes with its message.
	outcome, err = h.lost(ctx, on, h.sql.look, []any{m.Consumer, h.key, h.source})
	return outcome, 0, err
}

// reported counts on MySQL, where a statement that writes selects nothing: its answer is in the id
// that it reports.
func reported(ctx context.Context, on conn, count statement, args []any) (found bool, status string, attempts int, err error) {
	result, err := on.ExecContext(ctx, count.text, count.args(args)...)
	_, joined := on.(gorm.TxCommitter) // then all of the transaction is gone
	for try := 1; try < deadlockTries && !joined && deadlocked(err); try++ {
		result, err = on.ExecContext(ctx, count.text, count.args(args)...)
	}
	if err != nil {
		return false, "", 0, err
	}
	answer, err := result.LastInsertId()
	switch answer % 4 {
	case 1:
		return err == nil, statusFailed, int(answer / 4), err
	case 2:
		return err == nil, statusDeadLetter, int(answer / 4), err
	default:
		return false, "", 0, err
	}
}

// describe is the error as the table keeps it.
func describe(ctx context.Context, err error) LastError {
	last := LastError{Class: ClassError, Message: cut(fmt.Sprint(err), maxErrorText)} // Sprint bears errors that panic, as nil pointers do
	var panicked *PanicError
	switch {
	case errors.As(err, &panicked):
		last.Class = ClassPanic
	case IsPermanent(err):
		last.Class = ClassPermanent
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		last.Class = ClassTimeout
	}
	return last
}
