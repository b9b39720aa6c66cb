package envelope

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// Message is a sealed event: data and metadata as they travel in the internal
// form, and what decides where they travel. After [Catalog.Seal] nothing changes
// it, and any number of goroutines may marshal it.
type Message struct {
	// Data is the event's JSON, shared by all forms: do not write into it.
	Data     json.RawMessage `json:"data"`
	Metadata Metadata        `json:"metadata"`
	// Routing is not on the wire: the zero value in a decoded message.
	Routing Routing `json:"-"`
}

// Metadata of the internal form. In it, as in its parts, a string that may be
// null on the wire is "" for null, a time the zero time.
type Metadata struct {
	Headers    Headers     `json:"headers"`
	Envelope   Envelope    `json:"envelope"`
	Domain     Domain      `json:"domain"`
	EventStore *EventStore `json:"event_store"` // nil in messages that we seal
	Extensions Extensions  `json:"extensions"`
}

// Headers identify a message.
type Headers struct {
	ID             uuid.UUID    `json:"id"`              // UUIDv7, the deduplication key
	Time           time.Time    `json:"time"`            // when the event was raised; UTC, microseconds
	Type           string       `json:"type"`            // wire type, "Ordering.OrderPlaced.v1"
	Stream         string       `json:"stream"`          // "ordering::order-42"; without an aggregate the context
	TraceParent    *TraceParent `json:"traceparent"`     // or null
	IdempotencyKey string       `json:"idempotency_key"` // or null
	Deadline       time.Time    `json:"deadline"`        // or null; see TTL
}

// Envelope describes the message itself.
type Envelope struct {
	SpecVersion string `json:"specversion"` // "1.0"
	Checksum    string `json:"checksum"`    // see Message.VerifyChecksum
}

// Domain places a message in the domain.
type Domain struct {
	FQN             string `json:"fqn"`              // Go type, "example.com/shop/ordering.OrderPlaced"
	Kind            string `json:"kind"`             // "EVENT"
	OriginStream    string `json:"origin_stream"`    // of the message that caused this one, or null
	StreamCategory  string `json:"stream_category"`  // "ordering::order"; without an aggregate the context
	Version         int    `json:"version"`          // of the event's schema
	SequenceID      string `json:"sequence_id"`      // "<aggregate version>.<n>"; or null, see Source.Version
	Asynchronous    bool   `json:"asynchronous"`     // true
	ExpectedVersion *int64 `json:"expected_version"` // version the aggregate was loaded with, or null
	Priority        int    `json:"priority"`         // see PriorityLevel
	CorrelationID   string `json:"correlation_id"`   // null in messages from elsewhere alone
	CausationID     string `json:"causation_id"`     // or null
}

// EventStore is the place of a message in an event store. An outbox has none; the
// field is there for messages from elsewhere.
type EventStore struct {
	GlobalPosition int64 `json:"global_position"`
	Position       int64 `json:"position"`
}

// Extensions are what enrichers, options and the context add. After Seal and
// after a decode, values are nil, bool, string, [json.Number], []any or
// map[string]any; the map is nil when there are none.
type Extensions map[string]any

// UnmarshalJSON keeps numbers as they are written.
func (x *Extensions) UnmarshalJSON(b []byte) error {
	var fields map[string]any
	if err := decodeNumbers(b, &fields); err != nil {
		return err
	}
	*x = nil
	if len(fields) > 0 {
		*x = fields
	}
	return nil
}

// Routing holds what decides the way of a message but is not on the wire.
type Routing struct {
	Type      *EventType
	Published bool // false: internal broker only
	// CausePublished says that the message which caused this one is known to be of a published
	// type: its stream may leave as domain.origin_stream, see [Include].
	CausePublished bool
	To             []string // external brokers, nil for all of them
	OrderingKey    string   // "" is unordered
	Destination    string   // as a rule the stream category
	// Headers go beside the message, to each of its brokers; see Header.
	Headers       map[string]string
	AggregateType string    // Source.Aggregate as given
	AggregateID   string    // Source.ID
	NotBefore     time.Time // zero: at once; UTC, whole microseconds
	ExpiresAt     time.Time // zero: never; UTC, whole microseconds
	Priority      int       // as domain.priority
	TenantID      string    // as the extension tenant_id
	CorrelationID string    // as domain.correlation_id: never empty
	CausationID   string
	TraceParent   string // W3C, "" for none
	TraceState    string // W3C, "" for none

	cause     *EventType // of the message which caused this one, nil where it is not known
	contracts []*Message // what leaves in place of the message, see AppendExternal
	encoded   []byte     // the data in the encoding of its type, nil where it has none; see MarshalData
}

// Values that are the same in every message we seal.
const (
	specVersion = "1.0"
	kindEvent   = "EVENT"
)

// MarshalInternal returns the internal form: the whole message, null members
// present. An *[EncodeError] is possible only if extensions were changed after
// Seal.
func (m *Message) MarshalInternal() ([]byte, error) {
	w := writer{b: make([]byte, 0, m.sizeHint())}
	w.open()
	w.raw("data", m.Data)
	w.name("metadata")
	w.metadata(&m.Metadata)
	w.close()
	return w.b, m.writeError(w.err)
}

func (m *Message) writeError(err error) error {
	if err == nil {
		return nil
	}
	return &EncodeError{m.Metadata.Headers.Type, err, extensionRemedy}
}

// sizeHint is a little above the size of the internal form without extensions.
func (m *Message) sizeHint() int {
	const fixed = 800 // names, punctuation, id, times, checksum, trace
	h, d := &m.Metadata.Headers, &m.Metadata.Domain
	return fixed + len(m.Data) + len(h.Type) + len(h.Stream) + len(h.IdempotencyKey) + len(d.FQN) +
		len(d.OriginStream) + len(d.StreamCategory) + len(d.CorrelationID) + len(d.CausationID)
}

// MarshalJSON returns the internal form of the metadata alone.
func (m Metadata) MarshalJSON() ([]byte, error) {
	var w writer
	w.metadata(&m)
	return w.b, w.err
}

func (w *writer) metadata(m *Metadata) {
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

	w.openMember("envelope")
	w.string("specversion", m.Envelope.SpecVersion)
	w.string("checksum", m.Envelope.Checksum)
	w.close()

	w.openMember("domain")
	w.string("fqn", m.Domain.FQN)
	w.string("kind", m.Domain.Kind)
	w.nullable("origin_stream", m.Domain.OriginStream)
	w.string("stream_category", m.Domain.StreamCategory)
	w.int("version", int64(m.Domain.Version))
	w.nullable("sequence_id", m.Domain.SequenceID)
	w.bool("asynchronous", m.Domain.Asynchronous)
	if m.Domain.ExpectedVersion == nil {
		w.null("expected_version")
	} else {
		w.int("expected_version", *m.Domain.ExpectedVersion)
	}
	w.int("priority", int64(m.Domain.Priority))
	w.nullable("correlation_id", m.Domain.CorrelationID)
	w.nullable("causation_id", m.Domain.CausationID)
	w.close()

	if m.EventStore == nil {
		w.null("event_store")
	} else {
		w.openMember("event_store")
		w.int("global_position", m.EventStore.GlobalPosition)
		w.int("position", m.EventStore.Position)
		w.close()
	}
	w.openMember("extensions")
	w.members(m.Extensions)
	w.close()

	w.close()
}
