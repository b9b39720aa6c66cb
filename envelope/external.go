package envelope

import (
	"encoding/json"
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

// ExternalMetadata of the external form. In it, as in its parts, a string that
// may be null on the wire is "" for null, a time the zero time.
type ExternalMetadata struct {
	Headers    ExternalHeaders  `json:"headers"`
	Domain     ExternalDomain   `json:"domain"`
	Envelope   ExternalEnvelope `json:"envelope"`
	Extensions Extensions       `json:"extensions"` // absent when empty
}

// ExternalHeaders are the [Headers] that leave.
type ExternalHeaders struct {
	ID             uuid.UUID    `json:"id"`
	Time           time.Time    `json:"time"`
	Type           string       `json:"type"`
	Stream         string       `json:"stream"`
	TraceParent    *TraceParent `json:"traceparent"`     // or null
	IdempotencyKey string       `json:"idempotency_key"` // or null
	Deadline       time.Time    `json:"deadline"`        // or null
}

// ExternalDomain is what leaves of [Domain].
type ExternalDomain struct {
	FQN            string `json:"fqn"`
	Kind           string `json:"kind"`
	OriginStream   string `json:"origin_stream"` // or null
	StreamCategory string `json:"stream_category"`
	Version        int    `json:"version"`
	SequenceID     string `json:"sequence_id,omitempty"` // or absent
	CorrelationID  string `json:"correlation_id"`        // or null
	CausationID    string `json:"causation_id"`          // or null
}

// ExternalEnvelope is what leaves of [Envelope].
type ExternalEnvelope struct {
	SpecVersion string `json:"specversion"`
}

// MarshalExternal returns the external form, with the named extensions of those
// that the message has; without a name none leaves, tenant and actor included. The
// error is a *[NotPublishedError] for an event type that is not marked
// [Published], or an *[EncodeError] if extensions were changed after Seal.
func (m *Message) MarshalExternal(extensions ...string) ([]byte, error) {
	if !m.Routing.Published {
		return nil, &NotPublishedError{m.Metadata.Headers.Type}
	}
	x := m.external(m.Metadata.Extensions.only(extensions))
	b, err := x.marshal(m.sizeHint())
	return b, m.writeError(err)
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

// external is the list of what may leave, but for the extensions, which are said.
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

func (x *ExternalMessage) marshal(sizeHint int) ([]byte, error) {
	w := writer{b: make([]byte, 0, sizeHint)}
	w.open()
	w.raw("data", x.Data)
	w.name("metadata")
	w.externalMetadata(&x.Metadata)
	w.close()
	return w.b, w.err
}

// MarshalJSON returns the external form of the metadata alone.
func (m ExternalMetadata) MarshalJSON() ([]byte, error) {
	var w writer
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
	w.string("fqn", m.Domain.FQN)
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
