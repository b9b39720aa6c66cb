package inbox

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
)

// decode makes an event of a message.
type decode func(m *Message) (any, error)

// handled is a function for one wire type.
type handled struct {
	takes  reflect.Type
	decode decode
	run    func(tx *gorm.DB, event any, m *Message) error
}

// upcast is a step from one wire type to another.
type upcast struct {
	to           string
	takes, gives reflect.Type
	decode       decode
	convert      func(any) (any, error)
}

// route is the way from the data of a wire type to its function.
type route struct {
	decode decode
	steps  []*upcast
	run    func(tx *gorm.DB, event any, m *Message) error
}

// On handles events of a wire type, such as "Ordering.OrderPlaced.v2", with f. The event's data is
// decoded into an E, any Go type with the same JSON: consumers and producers need not share types.
//
// f runs in a transaction, tx, whose context carries what the message causes ([Message.Context]):
// use tx for everything that belongs to the effect. When f returns nil, effect and message are
// committed together; an error, or a panic, rolls both back, and the message comes again. So f may
// run more than once, but only one run lasts.
//
// Problems do not panic: they wait for [Handlers.Err].
func On[E any](h *Handlers, wireType string, f func(tx *gorm.DB, event E, m *Message) error) {
	h.change(func() {
		switch {
		case wireType == "":
			h.problems = append(h.problems, fmt.Errorf("inbox: On[%s]: the wire type is empty: give the one on the wire, like Ordering.OrderPlaced.v1", reflect.TypeFor[E]()))
		case f == nil:
			h.problems = append(h.problems, fmt.Errorf("inbox: On(%s): the function is nil", wireType))
		case h.handled[wireType] != nil:
			h.problems = append(h.problems, fmt.Errorf("inbox: On(%s): it has a handler already: call both functions from one, or give the second a consumer of its own", wireType))
		default:
			h.handled[wireType] = &handled{
				takes:  reflect.TypeFor[E](),
				decode: decodeAs[E],
				run: func(tx *gorm.DB, event any, m *Message) error {
					typed, _ := event.(E) // resolve has compared the types
					return f(tx, typed, m)
				},
			}
		}
	})
}

// Upcast turns events of an old version into those of a newer one, which is handled by a function
// added with [On], or is itself upcast to a still newer one. An error of convert rejects the
// message. Convert must be a pure function: it may run several times.
func Upcast[From, To any](h *Handlers, from, to string, convert func(From) (To, error)) {
	h.change(func() {
		switch {
		case from == "" || to == "" || from == to:
			h.problems = append(h.problems, fmt.Errorf("inbox: Upcast(%q, %q): give two wire types, the old one and the new one", from, to))
		case convert == nil:
			h.problems = append(h.problems, fmt.Errorf("inbox: Upcast(%s, %s): the function is nil", from, to))
		case h.upcasts[from] != nil:
			h.problems = append(h.problems, fmt.Errorf("inbox: Upcast(%s, %s): it is upcast to %s already", from, to, h.upcasts[from].to))
		default:
			h.upcasts[from] = &upcast{
				to: to, takes: reflect.TypeFor[From](), gives: reflect.TypeFor[To](), decode: decodeAs[From],
				convert: func(event any) (any, error) {
					typed, _ := event.(From) // resolve has compared the types
					return convert(typed)
				},
			}
		}
	})
}

// DecodeAs says how an E is made of a message, for every [On] and [Upcast] that takes an E: where the data is not JSON,
// but Avro, say; package protobuf of Fanout uses it. Without it the data of the message is decoded by encoding/json.
// Message.Payload is what has arrived; of a message with an envelope, the data is in Message.Envelope, and what is not
// JSON in the Binary of Message.CloudEvent. An error, or a panic, makes a dead letter of the message, as does data that
// does not fit. decode must be safe for concurrent use. The last one for a type holds.
func DecodeAs[E any](h *Handlers, decode func(m *Message) (E, error)) {
	t := reflect.TypeFor[E]()
	h.change(func() {
		if decode == nil {
			h.problems = append(h.problems, fmt.Errorf("inbox: DecodeAs[%s]: the function is nil", t))
			return
		}
		h.decoders[t] = func(m *Message) (any, error) { return decode(m) }
	})
}

// decodeAs decodes JSON.
func decodeAs[E any](m *Message) (any, error) {
	data := m.Envelope.Data
	if data == nil {
		if contentType, isOther := m.otherThanJSON(); isOther {
			return nil, fmt.Errorf("inbox: the data, of content type %.100q, is not JSON: %s", contentType, otherRemedy(contentType))
		}
	}
	return envelope.DataAs[E](data)
}

// otherThanJSON returns the content type of data that is not JSON.
func (m *Message) otherThanJSON() (contentType string, is bool) {
	if m.CloudEvent != nil {
		return m.CloudEvent.DataContentType, m.CloudEvent.Binary != nil
	}
	return contentTypeOf(m.Attributes), true
}

func otherRemedy(contentType string) string {
	if namesProtobuf(contentType) {
		return "handle the type with protobuf.On in place of inbox.On (module github.com/gorm-fanout/fanout/protobuf)"
	}
	return "give the consumer a Decoder that makes JSON of it, handle the type with a Handler of your own, or say how the event is decoded with inbox.DecodeAs"
}

// resolve works out the way of each wire type. The caller holds the lock.
func (h *Handlers) resolve() {
	h.resolved = make(map[string]*route, len(h.handled)+len(h.upcasts))
	problems := slices.Clone(h.problems)
	for wireType, f := range h.handled {
		h.resolved[wireType] = &route{decode: h.decoding(f.takes, f.decode), run: f.run}
	}
	for _, wireType := range slices.Sorted(maps.Keys(h.upcasts)) {
		if h.handled[wireType] != nil {
			problems = append(problems, fmt.Errorf("inbox: %s has both a handler and an upcast to %s: remove one of them", wireType, h.upcasts[wireType].to))
			continue
		}
		r, err := h.follow(wireType)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		h.resolved[wireType] = r
	}
	for _, wireType := range slices.Sorted(maps.Keys(h.ignored)) {
		if h.resolved[wireType] != nil {
			problems = append(problems, fmt.Errorf("inbox: %s is both handled and ignored: remove one of them", wireType))
		}
	}
	if len(h.handled) == 0 && len(h.ignored) == 0 && !h.rejectUnknown {
		problems = append(problems, errors.New("inbox: there is no handler, so every message would be skipped and confirmed: add inbox.On, or say WithRejectUnknown or Ignore"))
	}
	h.err = errors.Join(problems...)
}

// decoding is how a Go type is decoded.
func (h *Handlers) decoding(t reflect.Type, otherwise decode) decode {
	if own := h.decoders[t]; own != nil {
		return own
	}
	return otherwise
}

// follow walks the upcasts from a wire type to its function.
func (h *Handlers) follow(from string) (*route, error) {
	r := &route{decode: h.decoding(h.upcasts[from].takes, h.upcasts[from].decode)}
	at, seen := from, map[string]bool{}
	for h.handled[at] == nil {
		step := h.upcasts[at]
		if step == nil {
			return nil, fmt.Errorf("inbox: %s is upcast to %s, which has no handler: add inbox.On for it", from, at)
		}
		if seen[at] {
			return nil, fmt.Errorf("inbox: the upcasts of %s go round in a circle, by %s", from, at)
		}
		seen[at] = true
		if next := h.takenBy(step.to); next != nil && next != step.gives {
			return nil, fmt.Errorf("inbox: the upcast of %s to %s gives a %s, and what takes it wants a %s", at, step.to, step.gives, next)
		}
		r.steps = append(r.steps, step)
		at = step.to
	}
	r.run = h.handled[at].run
	return r, nil
}

// takenBy is the Go type that a wire type is taken as; nil for one that is not handled.
func (h *Handlers) takenBy(wireType string) reflect.Type {
	switch {
	case h.handled[wireType] != nil:
		return h.handled[wireType].takes
	case h.upcasts[wireType] != nil:
		return h.upcasts[wireType].takes
	}
	return nil
}

// event decodes the data of a message, and brings it to the version that is handled.
func (r *route) event(m *Message) (event any, err error) {
	returned := false
	defer func() {
		if value := recover(); !returned { // value is nil with GODEBUG=panicnil=1
			event, err = nil, fmt.Errorf("inbox: an upcast or a function given to DecodeAs panicked: %v", value)
		}
	}()
	event, err = r.upcast(m)
	returned = true
	return event, err
}

func (r *route) upcast(m *Message) (event any, err error) {
	if event, err = r.decode(m); err != nil {
		return nil, err
	}
	for _, step := range r.steps {
		if event, err = step.convert(event); err != nil {
			return nil, fmt.Errorf("inbox: upcast to %s: %w", step.to, err)
		}
	}
	return event, nil
}
