package envelope

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/internal/limits"
)

// Seal turns an event into a message: it takes the JSON of the data, once for all
// forms, computes the checksum, and settles where and when the message goes. It does not
// read the clock and draws no ids: sealing the same event twice gives the same
// message. A zero src stands for that of [Event.From]. A message without a correlation id in cx gets its
// own id as one; who seals several events of one unit of work sets that of the first for all of them.
//
// The error is an *[UnregisteredError], a *[PointerEventError], an *[OptionError]
// (several are joined) or an *[EncodeError], each naming the event and the remedy.
func (c *Catalog) Seal(ev Event, src Source, cx Context) (*Message, error) {
	t, err := c.Lookup(ev.Data)
	if err != nil {
		return nil, err
	}
	if src == (Source{}) {
		src = ev.Source()
	}
	if cx.CorrelationID == "" && ev.ID != uuid.Nil {
		cx.CorrelationID = ev.ID.String()
	}
	p := &sealing{catalog: c, t: t, s: t.settings, ev: ev, src: src, cx: cx}
	identified, err := ev.Identified(src)
	if err != nil {
		return nil, p.fail("give the field the type of the key, or a text", err)
	}
	if late := awaitsID(t.goType, ev.Data) && src.ID != ""; late {
		p.ev.Data, p.ev.raised = identified, raised{} // encoded now, with the id
	}
	if err := p.recall(ev.raised.derived); err != nil {
		return nil, err
	}
	p.s.priority = nil // the event's own; between it and the type's stands the context's
	if problems := p.s.apply(atRaise, t.goType, ev.Options); len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	m, err := p.seal()
	if err == nil {
		err = p.contracts(m)
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// recall takes over what was made of the event when it was raised, unless it has got its id since.
func (p *sealing) recall(then []derived) error {
	for _, d := range then {
		if d.of == p.t {
			p.place = d.place
			if err := p.changedAtRaise(d.converted); err != nil {
				return err
			}
		}
	}
	for _, d := range p.ev.raised.derived {
		if d.of == p.t {
			p.s.functions, p.converted, p.encoded = d.functions, d.converted, d.encoded
		}
	}
	return nil
}

// sealing is one call of Seal.
type sealing struct {
	catalog *Catalog
	t       *EventType
	s       settings // the type's, with the event's options applied
	ev      Event
	src     Source
	cx      Context

	asWritten []byte      // the data as encoding/json has written it, before any field was renamed
	converted []converted // by contract; nil: they are to be asked now
	encoded   *encoded    // by the type's encoding; nil: it is to be asked now
	place     string      // where the event was raised, where that is known
}

func (p *sealing) fail(remedy string, cause error) error {
	return &EncodeError{EventType: p.t.wireType, Cause: cause, Remedy: remedy}
}

func (p *sealing) seal() (*Message, error) { //nolint:funlen // the fields of a message, one after the other
	if err := p.checkInput(); err != nil {
		return nil, err
	}
	data, inEncoding, err := p.data()
	switch {
	case err != nil:
		return nil, p.fail(encodeRemedy(err), err)
	case isNull(data):
		return nil, p.fail("raise an empty map or list in place of nil", errors.New("its data is null, which no consumer takes"))
	}
	p.asWritten = data
	data = p.t.renaming.Rename(data)
	sum, err := checksum(data)
	if err != nil {
		return nil, p.fail(encodeRemedy(err), err)
	}
	extensions, err := p.mergeExtensions()
	if err != nil {
		return nil, err
	}
	at, err := p.time()
	if err != nil {
		return nil, err
	}
	notBefore, deadline, err := p.schedule(at)
	if err != nil {
		return nil, err
	}
	category, stream := p.src.streams(p.catalog.context)
	if err := boundFlaw(stream, limits.MaxStreamBytes); err != nil {
		return nil, p.fail(streamRemedy, fmt.Errorf("its stream %w", err))
	}
	key, err := p.orderingKey(stream)
	if err != nil {
		return nil, err
	}
	destination, err := p.destination(category)
	if err != nil {
		return nil, err
	}
	headers, err := p.headers()
	if err != nil {
		return nil, err
	}
	cause, _ := p.catalog.ByWireType(p.cx.causeType())
	trace, w3cParent, w3cState := p.trace()
	tenant, _ := extensions[ExtensionTenantID].(string)
	priority := int(p.priority())

	return &Message{
		Data: data,
		Metadata: Metadata{
			Headers: Headers{
				ID:             p.ev.ID,
				Time:           at,
				Type:           p.t.wireType,
				Stream:         stream,
				TraceParent:    trace,
				IdempotencyKey: p.cx.IdempotencyKey,
				Deadline:       deadline,
			},
			Envelope: Envelope{SpecVersion: specVersion, Checksum: sum},
			Domain: Domain{
				FQN:             p.t.fqn,
				Kind:            kindEvent,
				OriginStream:    p.cx.OriginStream,
				StreamCategory:  category,
				Version:         p.s.version,
				SequenceID:      sequenceID(&p.src, notBefore),
				Asynchronous:    true,
				ExpectedVersion: p.src.ExpectedVersion,
				Priority:        priority,
				CorrelationID:   p.cx.CorrelationID,
				CausationID:     p.cx.CausationID,
			},
			Extensions: extensions,
		},
		Routing: Routing{
			Type:           p.t,
			Published:      p.s.published,
			CausePublished: cause != nil && cause.settings.published,
			cause:          cause,
			To:             slices.Clone(p.s.to),
			OrderingKey:    key,
			Destination:    destination,
			Headers:        headers,
			AggregateType:  p.src.Aggregate,
			AggregateID:    p.src.ID,
			NotBefore:      notBefore,
			ExpiresAt:      deadline,
			Priority:       priority,
			TenantID:       tenant,
			CorrelationID:  p.cx.CorrelationID,
			CausationID:    p.cx.CausationID,
			TraceParent:    w3cParent,
			TraceState:     w3cState,
			encoded:        inEncoding,
		},
	}, nil
}

// data is the event's JSON, and its bytes in the encoding of its type where they are needed: those of the time when it
// was raised.
func (p *sealing) data() (text, inEncoding []byte, err error) {
	switch encoding := p.t.settings.encoding; {
	case encoding != nil:
		if p.encoded == nil {
			made := encoding.encode(p.ev.Data, p.t.leavesItself())
			p.encoded = &made
		}
		if p.encoded.err != nil {
			return nil, nil, fmt.Errorf("as %s%s: %w", encoding.ContentType, p.place, p.encoded.err)
		}
		return slices.Clip(p.encoded.json), slices.Clip(p.encoded.bytes), nil
	case p.ev.raised.known():
		return slices.Clip(p.ev.raised.json), nil, p.ev.raised.err // shared by all messages of the event
	}
	text, err = encodeJSON(addressable(p.ev.Data))
	return text, nil, err
}

const streamRemedy = "give the aggregate a shorter id: its stream is the context, the aggregate's name and the id"

func (p *sealing) checkInput() error {
	if p.ev.ID == uuid.Nil || !yearHasFourDigits(p.ev.Time) || p.ev.Time.IsZero() {
		return p.fail("build events with envelope.NewEvent",
			fmt.Errorf("the event has id %s and time %s", p.ev.ID, p.ev.Time.Format(time.RFC3339)))
	}
	if f := p.src.check(); f != nil {
		return p.fail(f.remedy, f.cause)
	}
	for _, field := range [...]struct{ name, value string }{
		{"correlation id", p.cx.CorrelationID},
		{"causation id", p.cx.CausationID},
		{"tenant id", p.cx.TenantID},
		{"actor", p.cx.Actor},
		{"idempotency key", p.cx.IdempotencyKey},
		{"origin stream", p.cx.OriginStream},
	} {
		if err := boundFlaw(field.value, limits.MaxContextBytes); err != nil {
			return p.fail("check such values where they enter the application",
				fmt.Errorf("the %s of the context: %w", field.name, err))
		}
	}
	if p.cx.Priority != nil && !p.cx.Priority.valid() {
		return p.fail(priorityRemedy, fmt.Errorf("the priority %d of the context is out of range", *p.cx.Priority))
	}
	return nil
}

func (p *sealing) priority() PriorityLevel {
	for _, level := range [...]*PriorityLevel{p.s.priority, p.cx.Priority, p.t.settings.priority} {
		if level != nil {
			return *level
		}
	}
	return PriorityNormal
}

func (p *sealing) orderingKey(stream string) (string, error) {
	switch {
	case p.s.unordered:
		return "", nil
	case p.s.key != nil:
		key, err := call(p, "Key", p.s.key)
		if err != nil {
			return "", err
		}
		if err := boundFlaw(key, MaxOrderingKeyBytes); err != nil {
			return "", p.fail("return readable text from the function given to envelope.Key: an id, or the hash of a longer text",
				fmt.Errorf("the ordering key %w", err))
		}
		return key, nil
	case p.src.Aggregate == "":
		return "", nil
	default:
		return stream, nil
	}
}

// time is when the event occurred: as a rule, when it was raised.
func (p *sealing) time() (at time.Time, err error) {
	if p.s.occurredAt != nil {
		if at, err = call(p, "OccurredAt", p.s.occurredAt); err != nil {
			return at, err
		}
	}
	if at.IsZero() {
		at = p.ev.Time
	}
	if !yearHasFourDigits(at) {
		return at, p.fail("return a time in the years 1 to 9999, or the zero time for that of the Raise", fmt.Errorf("OccurredAt leads to the year %d", at.UTC().Year()))
	}
	return at.UTC().Truncate(time.Microsecond), nil
}

// destination is where the message goes: as a rule, the stream category.
func (p *sealing) destination(category string) (destination string, err error) {
	if p.s.destination != nil {
		if destination, err = call(p, "Destination", p.s.destination); err != nil {
			return "", err
		}
	}
	if destination == "" {
		return category, nil
	}
	if err := boundFlaw(destination, limits.MaxStreamBytes); err != nil {
		return "", p.fail("return the readable name of a stream or topic from the function given to envelope.Destination", fmt.Errorf("its destination %w", err))
	}
	return destination, nil
}

// headers are the flat fields that go beside the message.
func (p *sealing) headers() (headers map[string]string, err error) {
	for _, h := range p.s.headers {
		value, err := call(p, "Header", h.value)
		switch {
		case err != nil:
			return nil, err
		case value == "": // after one of the type, the event's own may say that there is none
			delete(headers, h.name)
			continue
		}
		if err := limits.AttributeFlaw(h.name, value); err != nil {
			return nil, p.fail("return short printable text from the function given to envelope.Header", fmt.Errorf("the header %w", err))
		}
		if headers == nil {
			headers = make(map[string]string, len(p.s.headers))
		}
		headers[h.name] = value
	}
	return headers, nil
}

// schedule returns when the message may first be sent and when it expires; zero
// times mean at once and never.
func (p *sealing) schedule(at time.Time) (notBefore, deadline time.Time, err error) {
	if p.s.notBefore != nil {
		if notBefore, err = call(p, "NotBefore", p.s.notBefore); err != nil {
			return time.Time{}, time.Time{}, err
		}
		if !notBefore.IsZero() {
			// Rounded up: never before.
			notBefore = notBefore.UTC().Add(time.Microsecond - 1).Truncate(time.Microsecond)
		}
	}
	if p.s.ttl > 0 {
		deadline = at
		if notBefore.After(deadline) {
			deadline = notBefore
		}
		deadline = deadline.Add(p.s.ttl).Truncate(time.Microsecond)
	}
	if !yearHasFourDigits(notBefore) || !yearHasFourDigits(deadline) {
		return time.Time{}, time.Time{}, p.fail("return a time in the years 1 to 9999, or the zero time for at once",
			fmt.Errorf("NotBefore or TTL leads to the year %d", max(notBefore.Year(), deadline.Year())))
	}
	return notBefore, deadline, nil
}

// yearHasFourDigits: RFC 3339 knows no others. The zero time is of the year 1.
func yearHasFourDigits(t time.Time) bool {
	year := t.UTC().Year()
	return year >= 1 && year <= 9999
}

// trace is never a reason to refuse an event: what breaks the rules of W3C Trace Context is left
// out. The parent travels as version 00, which is the one that this package writes; a state that is
// too long is dropped as a whole.
func (p *sealing) trace() (parent *TraceParent, w3cParent, w3cState string) {
	parsed, ok := ParseTraceParent(p.cx.TraceParent)
	if !ok {
		return nil, "", ""
	}
	kept := parsed // costs an allocation, which an event without a trace does not need
	w3cParent = p.cx.TraceParent
	if !isVersion00(w3cParent) {
		w3cParent = kept.String()
	}
	if !isTraceState(p.cx.TraceState) {
		return &kept, w3cParent, ""
	}
	return &kept, w3cParent, p.cx.TraceState
}

// mergeExtensions: the type's, then the context's, then the event's; a later one
// replaces an earlier one of the same name. The settings hold the type's first.
func (p *sealing) mergeExtensions() (merged Extensions, err error) {
	cx := &p.cx
	if len(p.s.extensions) == 0 && len(cx.Extensions) == 0 && cx.TenantID == "" && cx.Actor == "" {
		return merged, nil
	}
	ofType := len(p.t.settings.extensions)
	merged = make(Extensions, len(p.s.extensions)+len(cx.Extensions)+2)
	for _, x := range p.s.extensions[:ofType] {
		merged[x.name] = x.value
	}
	maps.Copy(merged, cx.Extensions)
	if cx.TenantID != "" {
		merged[ExtensionTenantID] = cx.TenantID
	}
	if cx.Actor != "" {
		merged[ExtensionActor] = cx.Actor
	}
	for _, x := range p.s.extensions[ofType:] {
		merged[x.name] = x.value
	}
	for name, value := range merged {
		normal, f := checkExtension(name, value)
		if f != nil {
			return nil, p.fail(f.remedy, fmt.Errorf("extension %q: %w", name, f.cause))
		}
		merged[name] = normal
	}
	return merged, nil
}

// checkExtension returns the value as it travels, or what is wrong with it.
func checkExtension(name string, value any) (normal any, f *flaw) {
	if err := extensionNameFlaw(name); err != nil {
		return nil, &flaw{err, extensionNameRemedy}
	}
	normal, err := normalize(value)
	if err != nil {
		return nil, &flaw{err, extensionRemedy}
	}
	if name == ExtensionTenantID {
		// The tenant is a column and an attribute, and so must be text.
		tenant, ok := normal.(string)
		if !ok {
			return nil, &flaw{errors.New("the tenant id is not a string"), "use envelope.WithTenantID"}
		}
		if err := boundFlaw(tenant, limits.MaxContextBytes); err != nil {
			return nil, &flaw{fmt.Errorf("the tenant id %w", err), "use envelope.WithTenantID with readable text"}
		}
	}
	return normal, nil
}

// call runs a function of an option on the event.
func call[T any](p *sealing, option string, f func(any) T) (result T, err error) {
	returned := false
	defer func() {
		if r := recover(); !returned { // r is nil with GODEBUG=panicnil=1
			err = p.fail("fix the function given to envelope."+option,
				fmt.Errorf("the function of option %s: %w", option, &panicError{r}))
		}
	}()
	result = f(p.ev.Data)
	returned = true
	return result, nil
}
