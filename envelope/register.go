package envelope

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"github.com/gorm-fanout/fanout/internal/jsonfields"
	"github.com/gorm-fanout/fanout/internal/limits"
)

// EventType is one registered type of event. It is immutable.
type EventType struct {
	goType   reflect.Type
	wireType string
	fqn      string
	settings settings

	conversions  []*conversion        // of its contracts
	sharesMemory bool                 // copies of an event share some of it, which a contract might change
	renaming     *jsonfields.Renaming // of its fields, nil where they have the names that encoding/json writes
}

// WireType returns what travels as headers.type: context, name and version, such
// as "Ordering.OrderPlaced.v1".
func (t *EventType) WireType() string { return t.wireType }

// FQN returns import path and name of the Go type, such as
// "example.com/shop/ordering.OrderPlaced" (domain.fqn).
func (t *EventType) FQN() string { return t.fqn }

// Name returns the event's name without context and version, "OrderPlaced".
func (t *EventType) Name() string { return t.settings.name }

// Version returns the version of the event's schema, 1 or more.
func (t *EventType) Version() int { return t.settings.version }

// Published reports whether events of this type leave the application.
func (t *EventType) Published() bool { return t.settings.published }

// GoType returns the registered type.
func (t *EventType) GoType() reflect.Type { return t.goType }

// Brokers returns the external brokers that the option [To] names, nil for all;
// whoever knows the configuration checks them at start-up. To at Raise may
// name others.
func (t *EventType) Brokers() []string { return slices.Clone(t.settings.to) }

// Register adds event type E to the catalog. E is the plain value that the domain
// raises; a pointer is refused unless the type has an [Encoding], as generated Protobuf
// messages have, an interface always; a type without a name needs the option [Name]. Problems do not panic: they wait for [Catalog.Err], and the type
// stays unregistered.
func Register[E any](c *Catalog, opts ...Option) {
	t := reflect.TypeFor[E]()
	et, problems := c.newEventType(t, opts)
	c.update(func(r *registry) {
		if len(problems) == 0 {
			problems = r.conflicts(et)
		}
		if len(problems) == 0 {
			r.byType[t], r.byWire[et.wireType] = et, et
			for _, public := range et.Contracts() {
				r.outside[public.wireType] = public.goType
			}
			delete(r.refused, t)
			et.remember()
			return
		}
		r.problems = append(r.problems, problems...)
		if _, ok := r.byType[t]; !ok {
			r.refused[t] = errors.Join(problems...)
		}
	})
}

func (c *Catalog) newEventType(t reflect.Type, opts []Option) (*EventType, []error) {
	if f := kindFlaw(t, opts); f != nil {
		return nil, []error{registerError(t, f.cause, f.remedy)}
	}
	if f := idFlaw(t); f != nil {
		return nil, []error{registerError(t, f.cause, f.remedy)}
	}
	if f := promotedFlaw(t); f != nil {
		return nil, []error{registerError(t, f.cause, f.remedy)}
	}
	s := settings{version: 1}
	problems := s.apply(atRegister, t, opts)
	if s.name == "" {
		s.name = eventName(t)
		if !isEventName(s.name) && !gives(opts, setsName) {
			problems = append(problems, registerError(t,
				fmt.Errorf("the type's name %q cannot be that of an event: ASCII letters, digits and underscores, a letter first", s.name),
				`add the option envelope.Name("...")`))
		}
	}
	wireType := c.prefix + s.name + ".v" + strconv.Itoa(s.version)
	if err := boundFlaw(wireType, limits.MaxTypeBytes); err != nil {
		problems = append(problems, registerError(t, fmt.Errorf("its type on the wire %w", err),
			`shorten the context of the catalog, or add the option envelope.Name("...")`))
	}
	s.extensions = slices.Clip(s.extensions) // an event's are appended to a copy
	conversions, refused := c.conversions(t, &s)
	renaming, err := c.renaming(t, &s)
	if err != nil {
		refused = append(refused, registerError(t, err, renamingRemedy))
	}
	return &EventType{
		goType:      t,
		wireType:    wireType,
		fqn:         fqn(t),
		settings:    s,
		conversions: conversions, sharesMemory: len(conversions) > 0 && sharesMemory(t), renaming: renaming,
	}, append(problems, refused...)
}

const renamingRemedy = "give one of them another name by a tag `json:\"...\"`"

// renaming gives the fields of a type their names, where the catalog does. An encoding of its own has its own names.
func (c *Catalog) renaming(t reflect.Type, s *settings) (*jsonfields.Renaming, error) {
	if !c.camelCase || s.encoding != nil {
		return nil, nil //nolint:nilnil // they have those that encoding/json writes
	}
	return jsonfields.CamelCase(t) //nolint:wrapcheck // callers say of what
}

func kindFlaw(t reflect.Type, opts []Option) *flaw {
	if isProtobuf(t) && !gives(opts, setsEncoding) {
		elem := t
		if t.Kind() == reflect.Pointer {
			elem = t.Elem()
		}
		return &flaw{
			errors.New("it is a Protobuf message, whose JSON is not that of its Go type"),
			"write protobuf.Register[*" + goName(elem) + "](events), of the module github.com/gorm-fanout/fanout/protobuf",
		}
	}
	switch t.Kind() {
	case reflect.Pointer:
		if t.Elem().Kind() == reflect.Struct && gives(opts, setsEncoding) { // which knows how to take all of it, here and now
			return nil
		}
		return &flaw{
			errors.New("events are values, not pointers"),
			"write envelope.Register[" + goName(t.Elem()) + "](events)",
		}
	case reflect.Interface:
		return &flaw{
			errors.New("events are found by their concrete type, which an interface is not"),
			"register each type that implements it",
		}
	default:
		return nil
	}
}

// isProtobuf reports whether a type is a generated Protobuf message, or points to one, without a need to know the package.
func isProtobuf(t reflect.Type) bool {
	if t.Kind() != reflect.Pointer {
		t = reflect.PointerTo(t)
	}
	_, ok := t.MethodByName("ProtoReflect")
	return ok
}

// gives: an option that sets this was given; if it was refused, asking for it would mislead.
func gives(opts []Option, what string) bool {
	return slices.ContainsFunc(opts, func(o Option) bool {
		return !isNilOption(o) && o.option().sets == what
	})
}

// conflicts compares a new type with those registered before it.
func (r *registry) conflicts(et *EventType) []error {
	if earlier, ok := r.byType[et.goType]; ok {
		return []error{registerError(et.goType,
			fmt.Errorf("already registered as %s", earlier.wireType), "remove one of the two lines")}
	}
	if earlier, ok := r.byWire[et.wireType]; ok {
		return []error{registerError(et.goType,
			fmt.Errorf("%s is already %s", et.wireType, goName(earlier.goType)),
			"tell them apart with the option envelope.Name or envelope.Version")}
	}
	const remedy = "tell them apart with the option envelope.Name or envelope.Version of the event, or of its contract"
	leavesUnderItsType := false
	for _, public := range et.Contracts() {
		leavesUnderItsType = leavesUnderItsType || public.wireType == et.wireType
		outside, ok := r.outside[public.wireType]
		if ok && outside != public.goType {
			return []error{registerError(et.goType, fmt.Errorf("to partners %s is already %s", public.wireType, goName(outside)), remedy)}
		}
		if inside := r.byWire[public.wireType]; !ok && inside != nil && inside.goType != public.goType {
			return []error{registerError(et.goType,
				fmt.Errorf("to partners %s would be %s, and inside it is %s", public.wireType, goName(public.goType), goName(inside.goType)), remedy)}
		}
	}
	if outside, ok := r.outside[et.wireType]; ok && !leavesUnderItsType && outside != et.goType {
		return []error{registerError(et.goType, fmt.Errorf("to partners %s is already %s", et.wireType, goName(outside)), remedy)}
	}
	return nil
}

func registerError(t reflect.Type, cause error, remedy string) error {
	return &RegisterError{Subject: "register event " + goName(t), Cause: cause, Remedy: remedy}
}
