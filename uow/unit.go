package uow

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/capture"
	"github.com/gorm-fanout/fanout/internal/journal"
)

var (
	// ErrNoPlugin is returned when the GORM handle does not capture events.
	ErrNoPlugin = errors.New("uow: the GORM handle has no outbox: register it with db.Use(gormplugin.New(...))")
	// ErrNoTransaction is returned when an event is published outside a transaction, or in one that
	// has ended.
	ErrNoTransaction = journal.ErrNoTransaction
)

func hooksOf(db *gorm.DB) (capture.Hooks, error) {
	hooks, ok := capture.HooksOf(db)
	if !ok {
		return nil, ErrNoPlugin
	}
	return hooks, nil
}

// Publish writes an event that belongs to no aggregate, in the transaction of tx. Outside a
// transaction it is an error that wraps ErrNoTransaction. The event is encoded and its type is
// checked at once, the row is written when the transaction commits.
func Publish(tx *gorm.DB, event any, opts ...envelope.Option) error {
	hooks, err := hooksOf(tx)
	if err != nil {
		return err
	}
	return hooks.Publish(tx, journal.NewRaised(event, opts))
}

// Track flushes what an aggregate has raised although the transaction of tx writes no row of it
// through GORM: it was written with raw SQL, say. The aggregate is given as a pointer. In a
// transaction that was begun outside GORM its events are written at once, which is also the way to
// write those raised after its last save there. Outside a transaction it is an error that wraps
// ErrNoTransaction.
//
// An aggregate that is no GORM model, and is written by sqlc, raw SQL or a mapping type, needs
// [WithSource].
func Track(tx *gorm.DB, aggregate any, opts ...TrackOption) error {
	hooks, err := hooksOf(tx)
	if err != nil {
		return err
	}
	return track(hooks, tx, aggregate, opts)
}

// A TrackOption refines one [Track].
type TrackOption func(*tracking)

// tracking is the settings of one Track.
type tracking struct {
	source *envelope.Source
}

// WithSource says which aggregate it is that has raised the events, instead of what GORM knows of
// its type: its name, of which streams are made, its key as text, and its version where it has one.
// Aggregate and ID are required; Sequence is counted and must be left out.
//
//	uow.Track(tx, order, uow.WithSource(envelope.Source{Aggregate: "Order", ID: order.Number(), Version: 7}))
func WithSource(source envelope.Source) TrackOption {
	return func(t *tracking) { t.source = &source }
}

func track(hooks capture.Hooks, tx *gorm.DB, aggregate any, opts []TrackOption) error {
	var t tracking
	for _, opt := range opts {
		opt(&t)
	}
	if err := t.check(); err != nil {
		return fmt.Errorf("uow: track %T: WithSource: %w", aggregate, err)
	}
	return hooks.Track(tx, aggregate, t.source)
}

func (t *tracking) check() error {
	switch source := t.source; {
	case source == nil:
		return nil
	case source.Aggregate == "":
		return errors.New("there is no Aggregate: set it to the name of the aggregate's type, such as Order")
	case source.ID == "":
		return fmt.Errorf("the %s has no id: set ID to its key, as text", source.Aggregate)
	case source.Sequence != 0:
		return fmt.Errorf("the Sequence is %d: leave it out, for events are counted when they are written", source.Sequence)
	case source.Version < 0:
		return fmt.Errorf("the Version is %d: set it to a number from 1, or leave it out", source.Version)
	default:
		return source.Validate()
	}
}

// SavepointError is the answer to a commit after a rollback to a savepoint that was set where
// the library did not see it: on the *sql.Tx itself, or among several statements in one text.
type SavepointError = journal.SavepointError

// A Unit is one unit of work in progress.
type Unit struct {
	// DB is the transaction. Use it for everything that belongs to the unit.
	DB *gorm.DB

	hooks capture.Hooks
}

// Publish writes an event that belongs to no aggregate.
func (u *Unit) Publish(event any, opts ...envelope.Option) error {
	return u.hooks.Publish(u.DB, journal.NewRaised(event, opts))
}

// Track flushes what an aggregate has raised although the unit writes no row of it through GORM: it
// was written with raw SQL, say. The aggregate is given as a pointer. One that is no GORM model
// needs [WithSource]; see [Track].
func (u *Unit) Track(aggregate any, opts ...TrackOption) error {
	return track(u.hooks, u.DB, aggregate, opts)
}

// AfterCommit runs f once the outermost transaction has committed, in the goroutine that commits.
// It does not run when the transaction rolls back. Several run in the order in which they are
// given. A panic in one goes to who commits, after the others have run, and undoes nothing.
func (u *Unit) AfterCommit(f func()) error { return u.hooks.AfterCommit(u.DB, f) }

// settings of one Do.
type settings struct {
	attempts int
	repeats  func(error) bool
	tx       []*sql.TxOptions
}

// An Option refines one [Do].
type Option func(*settings)

// WithRetry runs the unit again, up to attempts times in all, when its transaction lost against
// another one (see [IsConflict]). Default: one attempt. Between attempts there is a pause of 10 ms,
// doubling up to 1 s, half of it at random.
//
// The function must bear being run again: load inside it what it changes. What it raised in a
// failed attempt on aggregates from outside is taken back, and what it raises again keeps its
// message id and time, matched by type and order. A Do that joins a transaction does not repeat:
// the outermost one must.
func WithRetry(attempts int) Option { return func(s *settings) { s.attempts = attempts } }

// WithRetryIf decides which errors make [WithRetry] run the unit again, instead of [IsConflict].
// Name only errors after which the transaction has certainly rolled back.
func WithRetryIf(repeats func(error) bool) Option { return func(s *settings) { s.repeats = repeats } }

// WithTxOptions begins the transaction with these options: its isolation level, say. They do not
// apply to a Do that joins one.
func WithTxOptions(options *sql.TxOptions) Option {
	return func(s *settings) { s.tx = []*sql.TxOptions{options} }
}

// Do runs f in a transaction and commits it when f returns nil, together with all events that were
// raised. An error, or a panic, rolls back; a panic goes on to the caller. Within a transaction, Do
// joins it by a savepoint: an error of f takes back only what f did. It works on handles of
// db.Connection too.
func Do(ctx context.Context, db *gorm.DB, f func(*Unit) error, opts ...Option) error {
	hooks, err := hooksOf(db)
	if err != nil {
		return err
	}
	s := settings{attempts: 1, repeats: IsConflict}
	for _, opt := range opts {
		opt(&s)
	}
	run := func(handle *gorm.DB) error {
		return handle.Transaction(func(tx *gorm.DB) error { //nolint:wrapcheck // f's error is the caller's own
			return f(&Unit{DB: tx, hooks: hooks})
		}, s.tx...)
	}
	handle := hooks.Wrap(db.WithContext(ctx))
	if _, joins := handle.Statement.ConnPool.(gorm.TxCommitter); joins || s.attempts <= 1 {
		return run(handle)
	}
	return s.retry(ctx, handle, run)
}
