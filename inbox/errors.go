package inbox

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// permanentError and unavailableError mark what they wrap.
type (
	permanentError   struct{ error }
	unavailableError struct{ error }
)

func (e permanentError) Unwrap() error   { return e.error }
func (e unavailableError) Unwrap() error { return e.error }

// Permanent marks an error that no repetition would fix: the message becomes a dead letter of the
// inbox, or is forwarded to those of the broker, at once. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanentError{err}
}

// Unavailable marks an error that is not the message's fault: what its handler needs is out. It is
// tried again for as long as it takes, and no attempt is counted. Unavailable(nil) is nil.
func Unavailable(err error) error {
	if err == nil {
		return nil
	}
	return unavailableError{err}
}

// IsPermanent reports whether err, or one that it wraps, was marked by [Permanent].
func IsPermanent(err error) bool {
	var marked permanentError
	return errors.As(err, &marked)
}

// IsUnavailable reports whether err, or one that it wraps, was marked by [Unavailable].
func IsUnavailable(err error) bool {
	var marked unavailableError
	return errors.As(err, &marked)
}

// A FailedError is the answer of [Handle] to an attempt that failed, was rolled back and was
// counted. The message comes again.
type FailedError struct {
	// Attempts that have failed so far, this one included, of at most Max.
	Attempts, Max int
	Err           error
}

// Error implements error.
func (e *FailedError) Error() string {
	return fmt.Sprintf("inbox: attempt %d of %d: %v", e.Attempts, e.Max, e.Err)
}

// Unwrap gives the cause to errors.Is and errors.As.
func (e *FailedError) Unwrap() error { return e.Err }

// A RefusedError is the answer to a message that comes under the id of another one: its source has
// used the id with another type, or, with [WithTokens], the token of the id waits for another
// source. Nothing is recorded, and the other message keeps its id. It is permanent: consumers put
// the message among the dead letters.
type RefusedError struct {
	Key                          uuid.UUID
	Source, Type                 string
	RecordedSource, RecordedType string
}

// Error implements error.
func (e *RefusedError) Error() string {
	if e.Source != e.RecordedSource {
		return fmt.Sprintf("inbox: message %s of %s is refused: its token waits for a message of %s: find out who wrote it, and under whose id", e.Key, e.Source, e.RecordedSource)
	}
	return fmt.Sprintf("inbox: message %s of %s is refused: its id is recorded with the type %q, and it says %q: it is no copy: find out who wrote it, and under whose id",
		e.Key, e.Source, e.RecordedType, e.Type)
}

// sound replaces an error that panics when it is asked for its text or its cause, as a nil pointer
// that was returned as an error does: whoever logs, stores or judges it would panic, too.
func sound(err error) (checked error) {
	if err == nil {
		return nil
	}
	defer func() {
		if value := recover(); value != nil {
			checked = fmt.Errorf("inbox: the error, a %T, panics when it is read: %v: return nil itself where there is no error, not a nil pointer", err, value)
		}
	}()
	_, _ = err.Error(), refused(err) // which asks for all causes
	return err
}

func refused(err error) bool {
	var refusal *RefusedError
	return errors.As(err, &refusal)
}

// A PanicError is what a handler has panicked with: an attempt that failed.
type PanicError struct {
	Value any
	Stack []byte
}

// Error implements error. The stack is not in it.
func (e *PanicError) Error() string { return fmt.Sprintf("inbox: the handler panicked: %v", e.Value) }
