package brokers

import (
	"errors"
	"fmt"
)

// Class says what a failed publish means for the message.
type Class string

// The classes of failure, in the order in which they matter to an operator.
const (
	// ClassPermanent: sending the same bytes again can never succeed. The row is abandoned at once.
	ClassPermanent Class = "permanent"
	// ClassRetryable: this attempt failed, another may succeed. The attempt is spent and the row
	// backs off.
	ClassRetryable Class = "retryable"
	// ClassUnavailable: the message is not to blame, nothing can be sent there at the moment. No
	// attempt is spent.
	ClassUnavailable Class = "unavailable"
	// ClassNotSent: the message was not handed to the broker. No attempt is spent and the row is
	// released.
	ClassNotSent Class = "not_sent"
)

// Scope says how much of a broker is unavailable.
type Scope string

// The scopes of [Unavailable], [Unreachable] and [Refused].
const (
	// ScopePartition: one part of a stream or topic (a partition, a shard); messages with other
	// ordering keys reach the destination.
	ScopePartition Scope = "partition"
	// ScopeDestination: one stream or topic (missing, no permission); other destinations of the
	// broker work.
	ScopeDestination Scope = "destination"
	// ScopeBroker: the broker as a whole (connection refused, out of memory, bad credentials).
	ScopeBroker Scope = "broker"
)

var (
	// ErrNotSent is the Result of a message that was not handed to the broker, because an earlier
	// message of its key failed in the same call or the context ended first. Test with errors.Is.
	ErrNotSent = errors.New("brokers: not sent")
	// ErrClosed is the Result of a publish after Close. It counts as unavailable, scope broker.
	ErrClosed = errors.New("brokers: broker is closed")
)

// Error is a classified failure. Make one with [Permanent], [Retryable], [Unavailable],
// [Unreachable] or [Refused]; read it with [Classify], [Unanswered] and [Refusal].
type Error struct {
	Class Class
	// Scope is how much is unavailable. Of the classes permanent and retryable it is how much may
	// be unavailable instead: see [Refused].
	Scope Scope
	// Unanswered is set where no server has said that it is out: see [Unreachable].
	Unanswered bool
	Err        error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Class == ClassUnavailable {
		return fmt.Sprintf("%s unavailable: %v", e.Scope, e.Err)
	}
	return fmt.Sprintf("%s: %v", e.Class, e.Err)
}

// Unwrap gives the cause to errors.Is and errors.As.
func (e *Error) Unwrap() error { return e.Err }

// Permanent marks err as final for this message: it will be abandoned without another attempt.
func Permanent(err error) error { return &Error{Class: ClassPermanent, Err: err} }

// Retryable marks err as a failed attempt that may succeed later.
func Retryable(err error) error { return &Error{Class: ClassRetryable, Err: err} }

// Unavailable marks err as an outage of the given scope, by the word of the server itself or of the
// client before anything was sent: out of memory, read-only, no such topic, no permission, closed.
// The message keeps its attempts, however often it meets one.
func Unavailable(scope Scope, err error) error {
	return &Error{Class: ClassUnavailable, Scope: scope, Err: err}
}

// Unreachable marks err as an outage of the given scope of which no server says whose it is: a
// connection that is refused, reset or cut off, silence until the deadline, a gateway's error. The
// message keeps its attempts, unless it causes the outage itself, as one that makes the server close
// the connection does: where it meets an outage of [ScopeBroker] again, alone, although others of the
// broker were delivered since, that attempt counts. An adapter that knows one for the smaller scopes, since
// the server hangs up at it and takes others there, says [Refused].
func Unreachable(scope Scope, err error) error {
	return &Error{Class: ClassUnavailable, Scope: scope, Unanswered: true, Err: err}
}

// Refused marks err as a refusal that does not say whose it is: an endpoint that answers 400 may mean
// this message, or have the wrong secret and refuse them all; so may a topic with a schema. err comes
// from [Permanent] or [Retryable].
//
// Until the refusal is proven to be the message's own, the scope counts as unavailable and the message
// keeps its attempts. It is proven where others of the scope are delivered in the same call, or before
// and after it while nothing else is refused. Refused again in a call that delivers others, the message
// has the class of err; refused again while nothing else is refused, it spends an attempt. So does one
// beside which the database has no other open row for the scope. The relay does not know which messages
// are of one partition, so of [ScopePartition] it takes nothing for a proof: an adapter that sees others
// of the partition pass says [ScopeDestination] instead. An err that is unavailable or not sent is
// returned as it is.
func Refused(scope Scope, err error) error {
	class, _ := Classify(err)
	if class == ClassUnavailable || class == ClassNotSent { // which says whose it is
		return err
	}
	if classified, ok := err.(*Error); ok { //nolint:errorlint // so that the class is said once; what wraps it says more
		err = classified.Err
	}
	return &Error{Class: class, Scope: scope, Err: err}
}

// Refusal is the scope of an error made by [Refused], and [ScopeDestination] for an error without a
// class, which does not say whose it is either; refused is false for all others.
func Refusal(err error) (scope Scope, refused bool) {
	var classified *Error
	switch {
	case errors.As(err, &classified):
		return classified.Scope, classified.Class != ClassUnavailable && classified.Scope != ""
	case err == nil, errors.Is(err, ErrNotSent), errors.Is(err, ErrClosed):
		return "", false
	default:
		return ScopeDestination, true
	}
}

// Unanswered reports whether an outage is one of which no server has said whose it is; see
// [Unreachable].
func Unanswered(err error) bool {
	var classified *Error
	return errors.As(err, &classified) && classified.Unanswered
}

// Classify reads the class and scope of a publish error; only ClassUnavailable has a scope. A refusal
// that does not say whose it is ([Refusal]) has the class that it has as the message's own; one
// without a class is retryable: whether the message arrived is unknown, and sending it again under the
// same id loses nothing. A cancelled context says nothing about the message and counts as not sent
// only where the implementation said so with ErrNotSent. A nil error has no class.
func Classify(err error) (Class, Scope) {
	if err == nil { // as nearly always: the variable below is an allocation
		return "", ""
	}
	var classified *Error
	switch {
	case errors.As(err, &classified) && classified.Class == ClassUnavailable:
		switch classified.Scope {
		case ScopeDestination, ScopePartition:
			return ClassUnavailable, classified.Scope
		default:
			return ClassUnavailable, ScopeBroker
		}
	case errors.As(err, &classified) && (classified.Class == ClassPermanent || classified.Class == ClassNotSent):
		return classified.Class, ""
	case errors.Is(err, ErrNotSent):
		return ClassNotSent, ""
	case errors.Is(err, ErrClosed):
		return ClassUnavailable, ScopeBroker
	default:
		return ClassRetryable, ""
	}
}

// NotSentBecause is ErrNotSent with the reason. errors.Is(err, ErrNotSent) holds for it.
func NotSentBecause(cause error) error {
	if cause == nil {
		return ErrNotSent
	}
	// The text alone, not the chain: a follower of a message that failed permanently has itself not
	// failed at all.
	return fmt.Errorf("%w: %s", ErrNotSent, cause.Error())
}
