package envelope

import (
	"fmt"
	"reflect"

	"github.com/google/uuid"
)

// failure is the text of all our errors: what was attempted, why it failed, what
// to do about it.
func failure(attempt string, cause any, remedy string) string {
	return fmt.Sprintf("envelope: %s: %v: %s", attempt, cause, remedy)
}

// UnregisteredError says that the catalog does not know an event's type. The text
// shows the line to add.
type UnregisteredError struct {
	Type    reflect.Type // of the event; nil when the event itself was nil
	Context string       // of the catalog that was asked
	Refused error        // why its registration was refused, if it was attempted
}

func (e *UnregisteredError) Error() string {
	attempt := "look up event " + goName(e.Type)
	switch {
	case e.Type == nil:
		return failure(attempt, "the event is nil", "raise a value of a registered type")
	case e.Refused != nil:
		return failure(attempt, "its registration was refused", e.Refused.Error())
	}
	return failure(attempt, fmt.Sprintf("not registered in the catalog %q", e.Context), "add "+registerLine(e.Type))
}

// Unwrap returns the reason of a refused registration.
func (e *UnregisteredError) Unwrap() error { return e.Refused }

func registerLine(t reflect.Type) string {
	option := ""
	if eventName(t) == "" {
		option = `, envelope.Name("...")`
	}
	if isProtobuf(t) {
		return "protobuf.Register[" + goName(t) + "](events" + option + ")"
	}
	return "envelope.Register[" + goName(t) + "](events" + option + ")"
}

// PointerEventError says that a pointer was raised. Events are values: what has
// happened does not change any more.
type PointerEventError struct {
	Type reflect.Type // the pointer type
}

func (e *PointerEventError) Error() string {
	elem := e.Type
	for elem.Kind() == reflect.Pointer {
		elem = elem.Elem()
	}
	return failure("look up event "+goName(e.Type), "events are values, not pointers",
		fmt.Sprintf("raise %s{...} instead of &%[1]s{...}", goName(elem)))
}

// RegisterError is one problem of a catalog: of its context, or of one event
// type. [Catalog.Err] joins them all.
type RegisterError struct {
	Subject string // e.g. "register event shop.OrderPlaced"
	Cause   error
	Remedy  string
}

func (e *RegisterError) Error() string { return failure(e.Subject, e.Cause, e.Remedy) }

// Unwrap returns the cause.
func (e *RegisterError) Unwrap() error { return e.Cause }

// OptionError says that an option does not fit: its value, the event type it was
// given for, the place, or another option.
type OptionError struct {
	Attempt string // "register" or "raise"
	Event   string // Go type, e.g. "shop.OrderPlaced"
	Option  string // as written, e.g. "Version(0)"
	Cause   error
	Remedy  string
}

func (e *OptionError) Error() string {
	return failure(e.Attempt+" event "+e.Event+": option "+e.Option, e.Cause, e.Remedy)
}

// Unwrap returns the cause.
func (e *OptionError) Unwrap() error { return e.Cause }

// EncodeError says that an event cannot become a message: its data has no JSON,
// its source or context holds what cannot travel, a function of its options
// panicked.
type EncodeError struct {
	EventType string // wire type, e.g. "Ordering.OrderPlaced.v1"
	Cause     error
	Remedy    string
}

func (e *EncodeError) Error() string { return failure("encode "+e.EventType, e.Cause, e.Remedy) }

// Unwrap returns the cause.
func (e *EncodeError) Unwrap() error { return e.Cause }

// NotPublishedError says that a caller asked for the external form of a message
// whose event type is not marked [Published]. The last line of defence: nothing
// leaves unless its type says so.
type NotPublishedError struct {
	EventType string // wire type
}

func (e *NotPublishedError) Error() string {
	return failure("encode "+e.EventType+" for an external broker", "the event type is not marked as published",
		"add envelope.Published() to its registration, or route it to the internal broker only")
}

// DecodeError says that bytes are not a message of the expected format.
type DecodeError struct {
	Format Format // "" where none was recognised
	Cause  error
	Remedy string
}

func (e *DecodeError) Error() string {
	form := string(e.Format)
	if form != "" {
		form += " "
	}
	return failure("decode "+form+"message", e.Cause, e.Remedy)
}

// Unwrap returns the cause.
func (e *DecodeError) Unwrap() error { return e.Cause }

// UnknownTypeError says that no registered event type has a message's wire type.
type UnknownTypeError struct {
	WireType string
	Context  string // of the catalog that was asked
}

func (e *UnknownTypeError) Error() string {
	return failure(fmt.Sprintf("unmarshal event %q", e.WireType),
		fmt.Sprintf("no such type in the catalog %q", e.Context),
		"register its Go type (with Name and Version where they differ), or skip the message")
}

// ChecksumError says that a message's data is not what was sealed.
type ChecksumError struct {
	ID        uuid.UUID
	EventType string // wire type
	Want, Got string // sha256, hex
}

func (e *ChecksumError) Error() string {
	return failure(fmt.Sprintf("verify checksum of %s %s", e.EventType, e.ID),
		fmt.Sprintf("metadata says %q, data has %q", e.Want, e.Got),
		"the data was changed on its way: fetch the message again from its outbox row")
}
