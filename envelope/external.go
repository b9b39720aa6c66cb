package envelope

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
)

// ExternalMessage is what partners receive. It shares no type with the internal
// form that could gain a field: whatever leaves is listed here, and copied field
// by field in one place.
type ExternalMessage struct {
	Data     json.RawMessage  `json:"data"`
	Metadata ExternalMetadata `json:"metadata"`
}

// ExternalMetadata of the external form. In it, as in its parts, a string that is
// absent on the wire, or null, is "", a time the zero time.
type ExternalMetadata struct {
	Headers    ExternalHeaders  `json:"headers"`
	Domain     ExternalDomain   `json:"domain"`
	Envelope   ExternalEnvelope `json:"envelope"`
	Extensions Extensions       `json:"extensions,omitempty"`
}

// ExternalHeaders are the [Headers] that leave.
type ExternalHeaders struct {
	ID             uuid.UUID    `json:"id"`
	Time           time.Time    `json:"time"`
	Type           string       `json:"type"`
	Stream         string       `json:"stream"`
	TraceParent    *TraceParent `json:"traceparent,omitempty"`
	IdempotencyKey string       `json:"idempotency_key,omitempty"` // see Include
	Deadline       time.Time    `json:"deadline,omitzero"`
}

// ExternalDomain is what leaves of [Domain].
type ExternalDomain struct {
	FQN            string `json:"fqn,omitempty"` // see Include
	Kind           string `json:"kind"`
	OriginStream   string `json:"origin_stream,omitempty"` // see Include
	StreamCategory string `json:"stream_category"`
	Version        int    `json:"version"`
	SequenceID     string `json:"sequence_id,omitempty"`
	CorrelationID  string `json:"correlation_id,omitempty"`
	CausationID    string `json:"causation_id,omitempty"`
}

// ExternalEnvelope is what leaves of [Envelope].
type ExternalEnvelope struct {
	SpecVersion string `json:"specversion"`
}

// Include names what leaves to an external broker beside what always does. It is for
// partners who need it: the zero value, which lets nothing more leave, is the default.
type Include struct {
	// FQN is domain.fqn, the event's Go type with its import path: a type that moves changes
	// what partners get.
	FQN bool
	// OriginStream is domain.origin_stream, the stream of the message that caused this one. It
	// leaves only where [WithCause] has said which message that is, and the catalog that seals
	// has its type as [Published]; package outbox lets it leave to those brokers alone that get
	// messages of that type.
	OriginStream bool
	// IdempotencyKey is headers.idempotency_key, which a client gave with its request.
	IdempotencyKey bool
	// Nulls writes members without a value as null, where they are else absent.
	Nulls bool
	// TraceState is the W3C tracestate, which vendors of tracing write. Unlike the others it is
	// no member of the external form: it travels beside the message, and as an attribute of a
	// CloudEvent.
	TraceState bool
}

// includes are the names of what can be included, as in configurations.
var includes = []struct {
	name string
	of   func(*Include) *bool
}{
	{"fqn", func(i *Include) *bool { return &i.FQN }},
	{"origin_stream", func(i *Include) *bool { return &i.OriginStream }},
	{"idempotency_key", func(i *Include) *bool { return &i.IdempotencyKey }},
	{"nulls", func(i *Include) *bool { return &i.Nulls }},
	{"tracestate", func(i *Include) *bool { return &i.TraceState }},
}

// Names lists what is included, by the names that configurations use: fqn, origin_stream,
// idempotency_key, nulls, tracestate.
func (i Include) Names() (names []string) {
	for _, one := range includes {
		if *one.of(&i) {
			names = append(names, one.name)
		}
	}
	return names
}

// With returns i with what has one of these names, too; known is false for every other.
func (i Include) With(name string) (more Include, known bool) {
	for _, one := range includes {
		if one.name == name {
			*one.of(&i), known = true, true
		}
	}
	return i, known
}

// MarshalExternal returns the external form, with what is to be included, and with the
// named extensions of those that the message has; without a name none leaves, tenant and
// actor included. The error is a *[NotPublishedError] for an event type that is not marked
// [Published], or an *[EncodeError] if extensions were changed after Seal.
func (m *Message) MarshalExternal(include Include, extensions ...string) ([]byte, error) {
	if err := m.mayLeave(); err != nil {
		return nil, err
	}
	x := m.external(m.Metadata.Extensions.only(extensions))
	h, d := &x.Metadata.Headers, &x.Metadata.Domain
	if !include.FQN {
		d.FQN = ""
	}
	if !include.OriginStream || !m.Routing.CausePublished {
		d.OriginStream = ""
	}
	if !include.IdempotencyKey {
		h.IdempotencyKey = ""
	}
	w := writer{b: make([]byte, 0, m.sizeHint()), lean: !include.Nulls}
	w.external(&x)
	return w.b, m.writeError(w.err)
}

// mayLeave reports whether the message itself may.
func (m *Message) mayLeave() error {
	switch {
	case !m.Routing.Published:
		return &NotPublishedError{m.Metadata.Headers.Type}
	case m.Routing.contracts != nil:
		return &EncodeError{m.Metadata.Headers.Type, errors.New("its type has contracts, which leave in its place"), "encode what Message.AppendExternal returns"}
	default:
		return nil
	}
}

// only returns the extensions of these names, nil where there are none.
func (x Extensions) only(names []string) (listed Extensions) {
	for _, name := range names {
		if value, found := x[name]; found {
			if listed == nil {
				listed = make(Extensions, len(names))
			}
			listed[name] = value
		}
	}
	return listed
}

// external is the list of what may leave, but for the extensions, which are given.
func (m *Message) external(extensions Extensions) ExternalMessage {
	h, d := &m.Metadata.Headers, &m.Metadata.Domain
	return ExternalMessage{
		Data: m.Data,
		Metadata: ExternalMetadata{
			Headers: ExternalHeaders{
				ID:             h.ID,
				Time:           h.Time,
				Type:           h.Type,
				Stream:         h.Stream,
				TraceParent:    h.TraceParent,
				IdempotencyKey: h.IdempotencyKey,
				Deadline:       h.Deadline,
			},
			Domain: ExternalDomain{
				FQN:            d.FQN,
				Kind:           d.Kind,
				OriginStream:   d.OriginStream,
				StreamCategory: d.StreamCategory,
				Version:        d.Version,
				SequenceID:     d.SequenceID,
				CorrelationID:  d.CorrelationID,
				CausationID:    d.CausationID,
			},
			Envelope:   ExternalEnvelope{SpecVersion: m.Metadata.Envelope.SpecVersion},
			Extensions: extensions,
		},
	}
}

// Message returns the same content as a [Message], with what the external form
// does not carry left empty.
func (x *ExternalMessage) Message() *Message {
	h, d := &x.Metadata.Headers, &x.Metadata.Domain
	return &Message{
		Data: x.Data,
		Metadata: Metadata{
			Headers: Headers{
				ID:             h.ID,
				Time:           h.Time,
				Type:           h.Type,
				Stream:         h.Stream,
				TraceParent:    h.TraceParent,
				IdempotencyKey: h.IdempotencyKey,
				Deadline:       h.Deadline,
			},
			Domain: Domain{
				FQN:            d.FQN,
				Kind:           d.Kind,
				OriginStream:   d.OriginStream,
				StreamCategory: d.StreamCategory,
				Version:        d.Version,
				SequenceID:     d.SequenceID,
				CorrelationID:  d.CorrelationID,
				CausationID:    d.CausationID,
			},
			Envelope:   Envelope{SpecVersion: x.Metadata.Envelope.SpecVersion},
			Extensions: x.Metadata.Extensions,
		},
	}
}

func (w *writer) external(x *ExternalMessage) {
	w.open()
	w.raw("data", x.Data)
	w.name("metadata")
	w.externalMetadata(&x.Metadata)
	w.close()
}

// MarshalJSON returns the external form of the metadata alone.
func (m ExternalMetadata) MarshalJSON() ([]byte, error) {
	w := writer{lean: true}
	w.externalMetadata(&m)
	return w.b, w.err
}

func (w *writer) externalMetadata(m *ExternalMetadata) {
	w.open()

	w.openMember("headers")
	w.uuid("id", m.Headers.ID)
	w.time("time", m.Headers.Time)
	w.string("type", m.Headers.Type)
	w.string("stream", m.Headers.Stream)
	w.traceParent("traceparent", m.Headers.TraceParent)
	w.nullable("idempotency_key", m.Headers.IdempotencyKey)
	w.nullableTime("deadline", m.Headers.Deadline)
	w.close()

	w.openMember("domain")
	w.optional("fqn", m.Domain.FQN)
	w.string("kind", m.Domain.Kind)
	w.nullable("origin_stream", m.Domain.OriginStream)
	w.string("stream_category", m.Domain.StreamCategory)
	w.int("version", int64(m.Domain.Version))
	w.optional("sequence_id", m.Domain.SequenceID)
	w.nullable("correlation_id", m.Domain.CorrelationID)
	w.nullable("causation_id", m.Domain.CausationID)
	w.close()

	w.openMember("envelope")
	w.string("specversion", m.Envelope.SpecVersion)
	w.close()

	if len(m.Extensions) > 0 {
		w.openMember("extensions")
		w.members(m.Extensions)
		w.close()
	}

	w.close()
}
