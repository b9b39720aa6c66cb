package envelope

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/gorm-fanout/fanout/internal/limits"
)

// Option refines an event type at [Register], or one event at Raise, Publish or
// [NewEvent]; what the event says wins. Each option can be given once, of
// [Extension] one for each name. [Published], [Name] and [Version] describe the
// type and belong to Register alone.
//
// Options are immutable: one value may serve many types and goroutines.
type Option interface{ option() *option }

type option struct {
	label    string // as the user wrote it
	sets     string // what it sets: two options in one list must differ in it
	typeOnly bool
	check    func(event reflect.Type) *flaw // nil: fits every event
	set      func(*settings)
	fix      func(event any) *option // nil: the option has no function to call
}

func (o *option) option() *option { return o }

const setsName = "name"

// flaw is a cause and its remedy, before it is known whose they are.
type flaw struct {
	cause  error
	remedy string
}

func invalid(remedy, cause string, args ...any) func(reflect.Type) *flaw {
	return func(reflect.Type) *flaw { return &flaw{fmt.Errorf(cause, args...), remedy} }
}

// Published lets an event type leave the application: besides the row for the
// internal broker its events get one for each external broker, or for each of the
// contracts that are for it ([As]). Without it events stay inside.
func Published(contracts ...Contract) Option {
	contracts = slices.Clone(contracts)
	o := &option{
		label: "Published()", sets: "published", typeOnly: true,
		set: func(s *settings) { s.published, s.contracts = true, contracts },
	}
	if contracts != nil && len(contracts) == 0 { // a list that has come out empty: without it the whole event would leave
		o.check = invalid("write Published() if partners are to get the event itself", "its list of contracts is empty")
	}
	return o
}

// Name sets the event's name on the wire; the default is that of the Go type.
// Letters, digits and underscores, a letter first.
func Name(name string) Option {
	o := &option{
		label: fmt.Sprintf("Name(%q)", name), sets: setsName, typeOnly: true,
		set: func(s *settings) { s.name = name },
	}
	if !isEventName(name) {
		o.check = invalid(`use a name such as "OrderPlaced"`, "a name is ASCII letters, digits and underscores, a letter first")
	}
	return o
}

// Version sets the version of the event's schema, 1 unless given. A new version
// is a new Go type under the same Name.
func Version(n int) Option {
	o := &option{
		label: fmt.Sprintf("Version(%d)", n), sets: "version", typeOnly: true,
		set: func(s *settings) { s.version = n },
	}
	if n < 1 {
		o.check = invalid("use 1 or more", "versions start at 1")
	}
	return o
}

// Key derives the ordering key from the event: messages with one key are
// delivered in order, those with a priority below [PriorityNormal] in one of their
// own. The default is the stream of the aggregate instance. An empty key means that
// this event is unordered. The function is called when the
// event is raised, and must be safe for concurrent use; a panic in it becomes an
// [EncodeError].
func Key[E any](key func(E) string) Option {
	return asks("Key", "order", key, func(s *settings, key func(event any) string) { s.unordered, s.key = false, key })
}

// Unordered takes the event out of every order: it may overtake and be overtaken,
// and no failed message holds it back.
func Unordered() Option {
	return &option{
		label: "Unordered()", sets: "order",
		set: func(s *settings) { s.unordered, s.key = true, nil },
	}
}

// Header sends the result of a function with the message as a flat field (a header or attribute of the broker)
// beside its own, to each broker that gets it, partners among them: consumers can filter on it without reading
// the payload. A field of the same name that the configuration gives a broker's messages gives way. Names have at
// most 256 bytes, values 1,024, both of printable text; the names of fields that messages have by themselves,
// such as id and type, are refused, as are more than 20 for one event. An empty value leaves the field out. The
// function is called when the event is raised, and must be safe for concurrent use; a panic in it becomes an
// [EncodeError].
func Header[E any](name string, value func(E) string) Option {
	o := asks("Header", "header "+name, value, func(s *settings, value func(event any) string) {
		s.headers = append(slices.Clip(s.headers), header{name, value})
	})
	takesEvent := o.check
	o.label = fmt.Sprintf("Header(%q)", name)
	o.check = func(event reflect.Type) *flaw {
		if err := limits.AttributeFlaw(name, ""); err != nil {
			return &flaw{err, `use a name such as "region"`}
		}
		return takesEvent(event)
	}
	return o
}

// maxHeaders of an event: with those that a configuration gives a broker's messages they are no more than Google
// Cloud Pub/Sub takes.
const maxHeaders = 20

// Destination sends the event to the stream or topic that a function names, in place of the stream category
// (ordering::order). Of a broker with a destination of its own in the configuration it is what {stream} stands
// for. An empty text leaves it as it is; at most 512 bytes. The ordering key stays, and orders messages to each
// broker over all destinations. The function is called when the event is raised, and must be safe for
// concurrent use; a panic in it becomes an [EncodeError].
func Destination[E any](to func(E) string) Option {
	return asks("Destination", "destination", to, func(s *settings, to func(event any) string) { s.destination = to })
}

// OccurredAt sets when the event occurred (headers.time), where that is not when it is raised: it was imported,
// say, or comes from a device. The zero time leaves it as it is. [TTL] counts from it. The function is called
// when the event is raised, and must be safe for concurrent use; a panic in it becomes an [EncodeError].
func OccurredAt[E any](at func(E) time.Time) Option {
	return asks("OccurredAt", "occurred at", at, func(s *settings, at func(event any) time.Time) { s.occurredAt = at })
}

// To sends a published event to these external brokers only, rather than to all.
func To(brokers ...string) Option {
	brokers = slices.Clone(brokers)
	o := &option{
		label: fmt.Sprintf("To(%s)", quoteAll(brokers)), sets: "brokers",
		set: func(s *settings) { s.to = brokers },
	}
	switch {
	case len(brokers) == 0:
		o.check = invalid("name a broker, or leave To out for all of them", "no broker is named")
	case slices.Contains(brokers, ""):
		o.check = invalid("use the names under external_brokers in the configuration", "a broker name is empty")
	case hasDuplicates(brokers):
		o.check = invalid("name each broker once", "a broker is named twice")
	}
	return o
}

// Priority sets the event's priority; see [PriorityLevel].
func Priority(p PriorityLevel) Option {
	o := &option{
		label: fmt.Sprintf("Priority(%d)", p), sets: "priority",
		set: func(s *settings) { s.priority = &p },
	}
	if !p.valid() {
		o.check = invalid(priorityRemedy, "out of range")
	}
	return o
}

const priorityRemedy = "use a level from PriorityBulk (-100) to PriorityCritical (100)"

// NotBefore schedules the message: it is sent after the time that the function
// returns, by the database's clock. The zero time means at once; the time may lie
// five years ahead at most. Until then its ordering key passes it: later messages of
// the key go first. So a scheduled event carries no sequence_id. The function is
// called when the event is raised, and must be safe for concurrent use; a panic in
// it becomes an [EncodeError].
func NotBefore[E any](at func(E) time.Time) Option {
	return asks("NotBefore", "not before", at, func(s *settings, at func(event any) time.Time) { s.notBefore = at })
}

// TTL is how long the message is worth delivering, counted from the event's time
// or from its NotBefore, whichever is later. After that it is abandoned. The
// deadline travels as headers.deadline. The default is: forever.
func TTL(d time.Duration) Option {
	o := &option{
		label: fmt.Sprintf("TTL(%s)", d), sets: "ttl",
		set: func(s *settings) { s.ttl = d },
	}
	if d < time.Microsecond {
		o.check = invalid("use a positive duration, or leave TTL out for no deadline", "a message would be expired at birth")
	}
	return o
}

// Extension adds a field to metadata.extensions; of an external message only where
// its broker lists the name. Value is anything that encoding/json encodes; it is
// encoded now. A broker with format cloudevents takes scalars only, under names of
// 1 to 20 characters a-z and 0-9: see
// [ValidateCloudEventExtension].
func Extension(name string, value any) Option {
	normal, err := normalize(value)
	o := &option{
		label: fmt.Sprintf("Extension(%q)", name), sets: "extension " + name,
		set: func(s *settings) { s.extensions = append(s.extensions, extension{name, normal}) },
	}
	if flaw := extensionNameFlaw(name); flaw != nil {
		o.check = invalid(extensionNameRemedy, "%w", flaw)
	} else if err != nil {
		o.check = invalid(extensionRemedy, "%w", err)
	}
	return o
}

const (
	extensionRemedy     = "use a value that encoding/json encodes, a string at best"
	extensionNameRemedy = `use a name such as "region"`
)

func extensionNameFlaw(name string) error {
	if name == "" {
		return errors.New("the name of an extension is empty")
	}
	return textFlaw(name)
}

// asks is an option with a function that is called when the event is raised.
func asks[E, T any](name, sets string, f func(E) T, set func(s *settings, f func(event any) T)) *option {
	o := option{label: name, sets: sets, check: takes[E](name, reflect.TypeFor[T]().String(), f == nil)}
	return asking(o, func(event any) T { return f(event.(E)) }, set) //nolint:forcetypeassert // takes has checked it
}

// asking adds the function to an option.
func asking[T any](o option, f func(event any) T, set func(s *settings, f func(event any) T)) *option {
	o.set = func(s *settings) { set(s, f) }
	o.fix = func(event any) *option { return asking(o, fix(f, event), set) }
	return &o
}

// takes checks that a function of the user's takes the event it is given for.
func takes[E any](option, result string, isNil bool) func(reflect.Type) *flaw {
	return func(event reflect.Type) *flaw {
		want := reflect.TypeFor[E]()
		if want == event && !isNil {
			return nil
		}
		remedy := fmt.Sprintf("write envelope.%s(func(e %s) %s { ... })", option, goName(event), result)
		if isNil {
			return &flaw{errors.New("the function is nil"), remedy}
		}
		return &flaw{fmt.Errorf("its function takes %s", goName(want)), remedy}
	}
}

func quoteAll(names []string) string {
	var out []byte
	for i, name := range names {
		if i > 0 {
			out = append(out, ", "...)
		}
		out = strconv.AppendQuote(out, name)
	}
	return string(out)
}

func hasDuplicates(names []string) bool {
	sorted := slices.Sorted(slices.Values(names))
	return len(slices.Compact(sorted)) < len(names)
}
