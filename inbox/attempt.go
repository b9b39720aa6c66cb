package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/uow"
)

// DefaultTimeout bounds one attempt of a handler.
const DefaultTimeout = 30 * time.Second

// A Runner is what consumers have in common: it makes single attempts at messages, and says what is
// to become of them. Its fields are set before it is used; then it is safe for concurrent use.
type Runner struct {
	// Handler is required.
	Handler Handler
	// Retry says how failures are repeated, and how many attempts a message has:
	// [Message].MaxAttempts is set from it.
	Retry Retry
	// Timeout bounds one attempt, default [DefaultTimeout]; the handler's context ends then.
	Timeout time.Duration
	// Observer is notified of each attempt; nil for none.
	Observer Observer
	// Overdue, if set, is called when a handler goes on although its context has ended, with true,
	// and with false when it has returned after all. The handler keeps what it has until then.
	Overdue func(goesOn bool)
	// Log gets a line for each attempt that failed, and an error for each message that becomes a
	// dead letter or is abandoned. Default: slog.Default().
	Log *slog.Logger
	// QuietDeadLetters leaves out the line for a message that becomes a dead letter of its handler:
	// whoever runs it writes its own.
	QuietDeadLetters bool
}

// Past is what a consumer has seen of a message so far.
type Past struct {
	// Failures are attempts that count against the message, and processes that have died with it.
	Failures int
	// Setbacks are the attempts since the last failure that do not count: something else was out.
	Setbacks int
}

// An Attempt is one run of a handler on one message.
type Attempt struct {
	Message *Message
	// Outcome is set where Err is nil.
	Outcome Outcome
	Err     error
	// Why is the reason of a message that became a dead letter in this attempt by [Handle] or
	// [Reject].
	Why  error
	Took time.Duration
	// Past includes this attempt; it is what the next one is to be told.
	Past
	// Retry is the pause before the next attempt, set where there is to be one.
	Retry time.Duration
	// Abandon says that the message will not be tried again, and goes to the dead letters of the
	// broker: its attempts are used up, or its error is permanent.
	Abandon bool
}

// Done reports whether the message can be confirmed at the broker.
func (a *Attempt) Done() bool { return a.Err == nil }

// An Observer is notified of what consumers do. Its methods must return quickly; they are called
// from many goroutines. A panic of theirs is logged, and changes nothing.
type Observer interface {
	// Begin is called with a message before its handler runs. The context that it returns is the
	// handler's: a tracer puts its span there.
	Begin(ctx context.Context, m *Message) context.Context
	// End is called with how the attempt ended, with the context that Begin returned.
	End(ctx context.Context, a *Attempt)
	// Forwarded is called when a message was forwarded to the dead letters of the broker, a stream
	// or topic of their own. Envelope is nil where it could not be read.
	Forwarded(ctx context.Context, m *Message, why error)
}

// An OverdueObserver is an [Observer] that is also told, once for each attempt, of a handler that
// goes on although its context has ended.
type OverdueObserver interface {
	// Overdue is called with how long the handler has run. The context is that of Begin.
	Overdue(ctx context.Context, m *Message, after time.Duration)
}

// Handlers that heed their context have overdueGrace to return, or as long again as their timeout
// where that is less. Of one that does not, the log says so again after each overdueAgain.
const (
	overdueGrace = time.Second
	overdueAgain = time.Minute
)

// Attempt runs the handler once; past is that of the attempt before, zero at first. An attempt
// counts against the message unless its error is unavailable, a lost race between transactions (see
// [uow.IsConflict]), or that of ctx itself having ended: then there is nothing wrong with the
// message. Where the handler itself counts, as [Handle] does, so does the pause.
func (r *Runner) Attempt(ctx context.Context, m *Message, past Past) *Attempt {
	began := time.Now()
	a := &Attempt{Message: m, Past: past}
	if budget := r.Retry.WithDefaults(DefaultRetry()).MaxAttempts; m.MaxAttempts != budget { // what an earlier attempt has left behind may read it
		m.MaxAttempts = budget
	}
	running := r.begin(ctx, m)
	progress := &progress{key: m.Key, failures: past.Failures}
	running = context.WithValue(running, progressKey{}, progress)
	limited, cancel := context.WithTimeoutCause(running, r.timeout(), fmt.Errorf("inbox: the handler took longer than %s", r.timeout()))
	a.Outcome, a.Err = r.run(limited, m, began)
	cancel()
	a.Took = time.Since(began)
	if why := progress.why.Load(); why != nil {
		a.Why = *why
	}
	if a.Err != nil {
		a.Outcome = ""
		r.judge(ctx, a)
	}
	r.report(running, a)
	return a
}

// Forwarded tells the observer that a message was forwarded to the dead letters of the broker.
func (r *Runner) Forwarded(ctx context.Context, m *Message, why error) {
	r.observe(ctx, m, func() { r.Observer.Forwarded(ctx, m, why) })
}

// begin asks the observer for the context of a handler.
func (r *Runner) begin(ctx context.Context, m *Message) (running context.Context) {
	running = ctx
	r.observe(ctx, m, func() {
		if begun := r.Observer.Begin(ctx, m); begun != nil {
			running = begun //nolint:fatcontext // it is the observer's, once
		}
	})
	return running
}

// observe tells the observer, if there is one. What it does wrong costs the message nothing.
func (r *Runner) observe(ctx context.Context, m *Message, tell func()) {
	if r.Observer == nil {
		return
	}
	defer func() {
		if value := recover(); value != nil {
			log := r.logOf(m)
			log.ErrorContext(ctx, "observer panicked", slog.Any("panic", value))
		}
	}()
	tell()
}

func (r *Runner) timeout() time.Duration {
	if r.Timeout > 0 {
		return r.Timeout
	}
	return DefaultTimeout
}

// progress is what the context of a handler has of the attempt. A goroutine that the handler has left
// behind may use it when the attempt is over.
type progress struct {
	key      uuid.UUID
	failures int // before
	why      atomic.Pointer[error]
}

// progressKey finds it.
type progressKey struct{}

// tellWhy says why a message becomes a dead letter to the attempt in progress, if there is one.
func tellWhy(ctx context.Context, why error) {
	if p, ok := ctx.Value(progressKey{}).(*progress); ok {
		p.why.Store(&why)
	}
}

// isLast reports whether a failure of the attempt in progress uses up what its consumer knows of the
// message's attempts: crashes and rolled back failures, which the inbox table has not counted, too.
func isLast(ctx context.Context, m *Message) bool {
	p, ok := ctx.Value(progressKey{}).(*progress)
	return ok && p.key == m.Key && p.failures+1 >= m.maxAttempts()
}

// errGone is a handler that did not return.
var errGone = errors.New("inbox: the handler has ended its goroutine (runtime.Goexit, or FailNow of a test) instead of returning")

// run makes an error of a panic, and of the end of the goroutine, which would take the consumer's
// worker with it: so the handler has one of its own.
func (r *Runner) run(ctx context.Context, m *Message, began time.Time) (outcome Outcome, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if value := recover(); value != nil {
				err = &PanicError{Value: value, Stack: debug.Stack()}
			}
		}()
		err = errGone
		outcome, err = r.Handler.Handle(ctx, m)
		err = sound(err)
	}()
	timer := time.NewTimer(max(r.timeout(), r.timeout()+min(r.timeout(), overdueGrace))) // it may overflow
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		r.overdue(ctx, m, began, done)
	}
	return outcome, err
}

// overdue waits for a handler that goes on although its context has ended, and says so: no one else
// can see why a worker does nothing.
func (r *Runner) overdue(ctx context.Context, m *Message, began time.Time, done <-chan struct{}) {
	log := r.logOf(m)
	if observer, ok := r.Observer.(OverdueObserver); ok {
		r.observe(ctx, m, func() { observer.Overdue(ctx, m, time.Since(began)) })
	}
	if r.Overdue != nil {
		r.Overdue(true)
		defer r.Overdue(false)
	}
	again := time.NewTicker(overdueAgain)
	defer again.Stop()
	for {
		log.WarnContext(ctx, "handler overdue", slog.Duration("after", time.Since(began)), slog.Duration("timeout", r.timeout()))
		select {
		case <-done:
			log.InfoContext(ctx, "overdue handler returned", slog.Duration("after", time.Since(began)))
			return
		case <-again.C:
		}
	}
}

// logOf is the log for lines about a message.
func (r *Runner) logOf(m *Message) *slog.Logger {
	log := r.Log
	if log == nil {
		log = slog.Default()
	}
	return log.With(slog.String("consumer", m.Consumer), slog.String("source", m.Source), slog.String("message_id", cut(m.ID, maxText)), slog.String("type", cut(m.Type, maxText)))
}

// judge decides about an attempt that failed.
func (r *Runner) judge(ctx context.Context, a *Attempt) {
	retry := r.Retry.WithDefaults(DefaultRetry())
	var counted *FailedError
	switch {
	case IsUnavailable(a.Err) || uow.IsConflict(a.Err):
		a.Setbacks++
		a.Retry = retry.Delay(a.Setbacks)
		return
	case ctx.Err() != nil: // the consumer stops
		a.Setbacks++
		a.Retry = retry.Delay(1)
		return
	case IsPermanent(a.Err):
		a.Failures, a.Abandon = a.Failures+1, true
		return
	}
	a.Failures, a.Setbacks = a.Failures+1, 0
	if errors.As(a.Err, &counted) {
		a.Retry = retry.Delay(counted.Attempts)
	} else {
		a.Retry = retry.Delay(a.Failures)
	}
	if a.Failures >= retry.MaxAttempts {
		a.Abandon, a.Retry = true, 0
	}
}

// report tells the observer and the log.
func (r *Runner) report(ctx context.Context, a *Attempt) {
	r.observe(ctx, a.Message, func() { r.Observer.End(ctx, a) })
	if a.Err == nil && (a.Outcome != DeadLettered || r.QuietDeadLetters) {
		return
	}
	log := r.logOf(a.Message)
	switch {
	case a.Err == nil:
		log.ErrorContext(ctx, "message dead-lettered", slog.Any("error", a.Why))
	case a.Abandon:
		log.ErrorContext(ctx, "message abandoned", slog.Int("attempts", a.Failures), slog.Any("error", a.Err))
	default:
		log.WarnContext(ctx, "message failed", slog.Int("attempts", a.Failures), slog.Duration("retry_in", a.Retry), slog.Any("error", a.Err))
	}
}
