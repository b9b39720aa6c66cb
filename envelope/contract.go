package envelope

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/internal/eventid"
	"github.com/gorm-fanout/fanout/internal/limits"
)

// Contract is what partners get in place of an event. Make one with [As] and give it to [Published].
type Contract struct {
	event, public reflect.Type
	convert       func(event any) any // nil where the function is
	options       []Option
}

// As publishes an event as a P, which is for partners: a field that is added to the event stays inside until
// the function copies it. Without As partners get the event itself, with all its exported fields.
//
//	envelope.Register[OrderPlaced](events, envelope.Published(
//		envelope.As(func(e OrderPlaced) PublicOrder { return PublicOrder{ID: e.OrderID} }),
//		envelope.As(func(e OrderPlaced) PublicOrderV2 { ... }, envelope.Version(2)),
//	))
//
// The options [Name] and [Version] are those of the contract: by default the event's name, and 1, whatever
// the event's own version. So is an [Encoding]. [To] names the external brokers that get it; without it all do. A broker gets an
// event once for each of its contracts, each of which it knows by its type (headers.type), so that partners
// can go from one version to the next at their own time. The first contract has the message id of the event,
// the others have one that is derived from it, the same on all of their brokers and always: append new ones
// behind. Where the first is removed, the next gets the id of the event: do not write events again then that
// were written before. Brokers for which there is no contract do not get the event.
//
// The function is called when the event is raised, and once more when an id is filled in late
// ([Event.Identified]); with the zero value when a writer starts, too ([Catalog.Warnings]). It must be safe for
// concurrent use, and must do nothing but copy. A panic in it, a result without JSON, an event that it raises, or a
// change of what the event's slices, maps and pointers hold, which are the application's own, is reported by
// [Catalog.Seal], and so fails the transaction, with the place where the event was raised. A change is one of the
// event's JSON, which is compared after each function of a type that has slices, maps, pointers or interfaces.
func As[E, P any](to func(E) P, opts ...Option) Contract {
	c := Contract{event: reflect.TypeFor[E](), public: reflect.TypeFor[P](), options: slices.Clone(opts)}
	if to != nil {
		c.convert = func(event any) any { return to(event.(E)) } //nolint:forcetypeassert // Published has checked it
	}
	return c
}

// A conversion is a contract of a registered type.
type conversion struct {
	public    *EventType // what partners get
	convert   func(event any) any
	derivesID bool // the first one has the message id of the event
}

// A converted is what a conversion has made of an event.
type converted struct {
	json    []byte
	encoded []byte // in the encoding of the contract's type, nil where it has none
	err     error  // why there is none
	remedy  string
}

// conversions checks the contracts of an event type.
func (c *Catalog) conversions(event reflect.Type, s *settings) (all []*conversion, problems []error) {
	for _, given := range s.contracts {
		public := settings{name: s.name, version: 1, published: true}
		label := "As(func(" + goName(given.event) + ") " + goName(given.public) + ")"
		refuse := func(cause error, remedy string) {
			problems = append(problems, &OptionError{atRegister, goName(event), label, cause, remedy})
		}
		if given.event != event || given.convert == nil {
			f := takes[struct{}]("As", goName(given.public), given.convert == nil)(event)
			if given.event != nil && given.convert != nil {
				f.cause = fmt.Errorf("its function takes %s", goName(given.event))
			}
			refuse(f.cause, f.remedy)
			continue
		}
		if f := given.publicFlaw(); f != nil {
			refuse(f.cause, f.remedy)
			continue
		}
		problems = append(problems, public.apply(atRegister, given.public, given.options)...)
		renaming, err := c.renaming(given.public, &public)
		if err != nil {
			refuse(err, renamingRemedy)
			continue
		}
		if public.describesMore() {
			refuse(errors.New("it has options that describe the event and not the contract"), "give it Name, Version and To alone, and the others to the event")
			continue
		}
		wireType := c.prefix + public.name + ".v" + strconv.Itoa(public.version)
		if err := boundFlaw(wireType, limits.MaxTypeBytes); err != nil {
			refuse(fmt.Errorf("its type on the wire %w", err), `give it the option envelope.Name("...")`)
			continue
		}
		one := &conversion{
			public:  &EventType{goType: given.public, wireType: wireType, fqn: fqn(given.public), settings: public, renaming: renaming},
			convert: given.convert,
			// Also where it shares no broker with the first: a consumer may read several, and whom a contract is for may change.
			derivesID: len(all) > 0,
		}
		if slices.ContainsFunc(all, one.competes) {
			refuse(fmt.Errorf("%s is another contract for the same broker already", wireType),
				"tell them apart with the option envelope.Version or envelope.Name, or envelope.To")
		}
		all = append(all, one)
	}
	return all, problems
}

// publicFlaw is what is wrong with the type that partners get.
func (c *Contract) publicFlaw() *flaw {
	switch f := kindFlaw(c.public, c.options); {
	case f == nil:
		return promotedFlaw(c.public)
	case isProtobuf(c.public):
		return &flaw{f.cause, "write protobuf.As in place of envelope.As"}
	default:
		return &flaw{errors.New("partners get a value, not a pointer or an interface"), "let the function return a struct"}
	}
}

// competes reports whether another contract of the event is the same to some broker.
func (c *conversion) competes(other *conversion) bool {
	return other.public.wireType == c.public.wireType && overlap(other.public.settings.to, c.public.settings.to)
}

// describesMore reports whether settings have more than a contract's.
func (s *settings) describesMore() bool {
	return !s.none() || s.unordered || s.priority != nil || s.ttl != 0 || len(s.extensions) > 0 || len(s.contracts) > 0
}

// overlap reports whether two lists of brokers have one in common; nil is all of them.
func overlap(a, b []string) bool {
	return a == nil || b == nil || slices.ContainsFunc(a, func(broker string) bool { return slices.Contains(b, broker) })
}

// convert makes what partners get of an event, whose JSON was this before any function saw it.
func (t *EventType) convert(event any, was []byte) []converted {
	results := make([]converted, len(t.conversions))
	if !t.sharesMemory {
		was = nil
	} else if !t.settings.none() && changed(event, was) {
		for i := range results {
			results[i] = converted{err: errOptionChanges, remedy: "copy what the functions given to Key, Header, Destination, OccurredAt and NotBefore change"}
		}
		return results
	}
	for i, c := range t.conversions {
		results[i] = c.apply(event, was)
	}
	return results
}

// apply makes the JSON that partners get. It checks that of the event, where it is given.
func (c *conversion) apply(event any, was []byte) (result converted) {
	raisingNothing(func() { result = c.asked(event) })
	switch {
	case errors.Is(result.err, errContractRaises):
		return converted{err: errContractRaises, remedy: "raise it where it happens, and let the function given to envelope.As only copy"}
	case was != nil && changed(event, was):
		return converted{err: errContractChanges, remedy: "copy what the function given to envelope.As changes"}
	}
	return result
}

func (c *conversion) asked(event any) (result converted) {
	result.remedy = "fix the function given to envelope.As"
	returned := false
	defer func() {
		if r := recover(); !returned { // r is nil with GODEBUG=panicnil=1
			result.err = &panicError{r}
		}
	}()
	public := c.convert(event)
	if encoding := c.public.settings.encoding; encoding != nil {
		made := encoding.encode(public, true)
		result.json, result.encoded, result.err = made.json, made.bytes, made.err
	} else {
		result.json, result.err = encodeJSON(addressable(public))
	}
	switch {
	case result.err != nil:
	case isNull(result.json):
		result.err = errors.New("its data is null, which no consumer takes")
	default: // as the event itself: keys that occur twice, say, which no consumer takes either
		result.json = c.public.renaming.Rename(result.json)
		_, result.err = checksum(result.json)
	}
	returned = true
	return result
}

// id is the message id of what a conversion has made of an event: a UUID of the same time and version.
func (c *conversion) id(event uuid.UUID) uuid.UUID {
	if !c.derivesID {
		return event
	}
	return eventid.Derive(event, c.public.wireType)
}

// refuse says why there is nothing for partners.
func (p *sealing) refuse(c *conversion, one converted) error {
	if errors.Is(one.err, errOptionChanges) {
		return p.fail(one.remedy, fmt.Errorf("%w%s", one.err, p.place))
	}
	return p.fail(one.remedy, fmt.Errorf("as %s (%s)%s: %w", goName(c.public.goType), c.public.wireType, p.place, one.err))
}

// changedAtRaise reports what has changed the event when it was raised: a second time it may change nothing more.
func (p *sealing) changedAtRaise(all []converted) error {
	for i, then := range all {
		if errors.Is(then.err, errOptionChanges) || errors.Is(then.err, errContractChanges) {
			return p.refuse(p.t.conversions[i], then)
		}
	}
	return nil
}

// contracts makes what leaves in place of a message.
func (p *sealing) contracts(m *Message) error {
	if len(p.t.conversions) == 0 {
		return nil
	}
	m.Routing.contracts = make([]*Message, len(p.t.conversions))
	if p.converted == nil {
		p.converted = p.t.convert(p.ev.Data, p.asWritten)
	}
	for i, c := range p.t.conversions {
		one := p.converted[i]
		if one.err != nil {
			return p.refuse(c, one)
		}
		public := *m
		public.Data = one.json
		public.Metadata.Headers.ID, public.Metadata.Headers.Type = c.id(p.ev.ID), c.public.wireType
		public.Metadata.Domain.Version, public.Metadata.Domain.FQN = c.public.settings.version, c.public.fqn
		public.Metadata.Envelope.Checksum = ""
		public.Routing.Type, public.Routing.contracts, public.Routing.encoded = c.public, nil, one.encoded
		m.Routing.contracts[i] = &public
	}
	return nil
}

// AppendExternal appends the messages that leave to an external broker in place of m: those of its type's
// contracts ([As]) that are for this broker, if any, or m itself where the type has none. They are shared and
// must not be changed. It looks neither at [Routing.To] nor at what a broker's filter lets pass.
func (m *Message) AppendExternal(messages []*Message, broker string) []*Message {
	if len(m.Routing.contracts) == 0 {
		return append(messages, m)
	}
	for _, public := range m.Routing.contracts {
		if to := public.Routing.Type.settings.to; to == nil || slices.Contains(to, broker) {
			messages = append(messages, public)
		}
	}
	return messages
}

// CauseTypes returns the types on the wire under which an external broker gets messages of the type of the one
// that caused this one; none where it gets none, or the cause is not known. It looks neither at To at Raise nor at
// what a broker's filter lets pass.
func (r *Routing) CauseTypes(broker string) []string {
	isFor := func(t *EventType) bool { return t.settings.to == nil || slices.Contains(t.settings.to, broker) }
	if r.cause == nil || !isFor(r.cause) {
		return nil
	}
	var types []string
	for _, leaving := range r.cause.Contracts() {
		if isFor(leaving) {
			types = append(types, leaving.wireType)
		}
	}
	return types
}

// Contracts returns the types that leave in place of this one: those of its contracts ([As]), or the type
// itself where it has none; nil where it is not published. Of a contract's type, Brokers are those that its
// option [To] names.
func (t *EventType) Contracts() []*EventType {
	switch {
	case !t.Published():
		return nil
	case len(t.conversions) == 0:
		return []*EventType{t}
	}
	all := make([]*EventType, len(t.conversions))
	for i, c := range t.conversions {
		all[i] = c.public
	}
	return all
}

// Warnings returns what is probably not meant, each with the event type: the function of a contract ([As])
// that panics on the zero value, which may be on its way to one that fails a transaction. It calls these
// functions; use it once, at start-up.
func (c *Catalog) Warnings() []error {
	var all []error
	for _, t := range c.Types() {
		for _, conversion := range t.conversions {
			zero := reflect.Zero(t.goType)
			if t.goType.Kind() == reflect.Pointer {
				zero = reflect.New(t.goType.Elem())
			}
			result := conversion.apply(zero.Interface(), nil)
			remedy := result.remedy
			switch panicked := (*panicError)(nil); {
			case errors.As(result.err, &panicked):
				remedy = "check for what may be missing in the function given to envelope.As"
			case !errors.Is(result.err, errContractRaises):
				continue
			}
			all = append(all, registerError(t.goType, fmt.Errorf("as %s (%s), of the zero value: %w",
				goName(conversion.public.goType), conversion.public.wireType, result.err), remedy))
		}
	}
	return all
}

// own are the packages that an event passes on its way from the application to [NewEvent].
var own = func() []string {
	module := strings.TrimSuffix(reflect.TypeFor[Event]().PkgPath(), "envelope")
	return []string{module + "envelope.", module + "uow.", module + "gormplugin.", module + "internal/journal.", module + "internal/capture.", module + "inbox/dedup."}
}()

// raisedAt is where the application has raised an event, as file:line.
func raisedAt() string {
	var callers [32]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers[:])])
	for {
		frame, more := frames.Next()
		if frame.Function == "runtime.goexit" { // of go order.Raise(...), which has no caller
			return ""
		}
		if !slices.ContainsFunc(own, func(prefix string) bool { return strings.HasPrefix(frame.Function, prefix) }) {
			return fmt.Sprintf(", raised at %s:%d", frame.File, frame.Line)
		}
		if !more {
			return ""
		}
	}
}

// The values of [EventType.KeyedBy].
const (
	keyedByAggregate = "aggregate"
	keyedByEvent     = "event"
	keyedByNothing   = "none"
)

// Headers returns the names of the flat fields that go beside such events by the option
// [Header], sorted. Any of them can be absent.
func (t *EventType) Headers() []string {
	names := make([]string, len(t.settings.headers))
	for i, h := range t.settings.headers {
		names[i] = h.name
	}
	slices.Sort(names)
	return names
}

// ChoosesDestination reports whether such events have the option [Destination].
func (t *EventType) ChoosesDestination() bool { return t.settings.destination != nil }

// KeyedBy returns what the ordering key of such events is made of, unless one says
// otherwise when it is raised: "aggregate" for the stream of the aggregate
// instance, which an event without an aggregate does not have, "event" for what
// the option [Key] derives, "none" for [Unordered].
func (t *EventType) KeyedBy() string {
	switch {
	case t.settings.unordered:
		return keyedByNothing
	case t.settings.key != nil:
		return keyedByEvent
	default:
		return keyedByAggregate
	}
}
