package inbox

import (
	"context"
	"errors"
	"time"
)

// An Outcome says what became of a message that its consumer is done with.
type Outcome string

// The outcomes. Each of them lets the message be confirmed at the broker.
const (
	// Handled means that its effect has happened now.
	Handled Outcome = "handled"
	// Duplicate means that it had been handled before, so nothing has happened now.
	Duplicate Outcome = "duplicate"
	// DeadLettered means that it failed permanently: it waits as a dead letter in the inbox table,
	// with its payload and its last error, until an operator redrives it; see [Redrive]. A message
	// that a consumer forwards to the dead letters of its broker has no outcome, since its handler
	// never succeeded; see [Observer].
	DeadLettered Outcome = "dead_lettered"
	// Skipped means that its type is not handled; see [Handlers]. So are messages that cannot be read
	// where the consumer skips them; see [UnreadableSkip].
	Skipped Outcome = "skipped"
)

// A Handler does what a message asks for. Consumers call it from several goroutines, with messages
// of one ordering key one after the other.
//
// Without an error the message is confirmed. With one it is not: it comes again after a pause. What
// the error says of itself decides how often: see [Permanent] and [Unavailable].
type Handler interface {
	Handle(ctx context.Context, m *Message) (Outcome, error)
}

// HandlerFunc makes a Handler of a function.
type HandlerFunc func(ctx context.Context, m *Message) (Outcome, error)

// Handle implements Handler.
func (f HandlerFunc) Handle(ctx context.Context, m *Message) (Outcome, error) { return f(ctx, m) }

// Validate reports what a handler says is wrong with itself, by a method Err, as [Handlers] have
// one, and refuses a [HandlerFunc] that is nil. Consumers ask at their start. A handler without that
// method is fine.
func Validate(h Handler) error {
	if f, ok := h.(HandlerFunc); ok && f == nil {
		return errors.New("inbox: the HandlerFunc is nil: give it a function")
	}
	if h, ok := h.(interface{ Err() error }); ok {
		return h.Err()
	}
	return nil
}

// A Skipper is a [Handler] that knows which types it skips, as [Handlers] do. Where a flat field
// says the type of a message that cannot be read, and the handler skips that type, the message is
// skipped by Handle, as if it could be read: its Envelope has id and type alone. A handler around
// another one should have the methods of both, which it has where it embeds the other.
type Skipper interface {
	Handler
	// Skips reports whether messages of a type are skipped whatever is in them.
	Skips(wireType string) bool
}

// A Rejecter is a [Handler] that can keep messages which cannot be read, as [Handlers] do in the inbox
// table; see [UnreadableDeadLetter].
type Rejecter interface {
	Handler
	// Reject makes a dead letter of a message that cannot be read. why says why it cannot. Without an
	// error it is kept, and will be confirmed: it is [DeadLettered], now or before, or a [Duplicate] of
	// one that has been handled since.
	Reject(ctx context.Context, m *Message, why error) (Outcome, error)
}

// UnknownLag stands for a number that the broker does not say.
const UnknownLag = -1

// Lag is how far a consumer is behind at one of its sources.
type Lag struct {
	// Source is the stream or subscription.
	Source string
	// Waiting is the number of messages that no process of the consumer has received yet,
	// [UnknownLag] or any negative number where the broker does not say.
	Waiting int64
	// Pending is the number of messages that were handed out and are not confirmed yet; unknown as
	// above.
	Pending int64
	// Oldest is how long ago the oldest of the pending ones was added to its source, so the time
	// that it had to wait counts too; 0 where there is none, negative where it is not known.
	Oldest time.Duration
}
