package outbox

import (
	"time"

	"github.com/google/uuid"
)

// A Row is what a writer inserts: one message for one broker, with the payload byte for byte as it goes on the wire.
// Zero values mean NULL or the column's default; MessageID, TargetBroker, Stream, Type and Payload are required.
type Row struct {
	// MessageID is the same on the rows of all brokers; unique together with TargetBroker.
	MessageID uuid.UUID
	// TargetBroker names the broker that this row is for.
	TargetBroker string
	// Stream is the destination on that broker, e.g. "ordering::order".
	Stream string
	// Type is the event type on the wire, e.g. "Ordering.OrderPlaced.v1".
	Type string
	// OrderingKey: rows of one broker with the same key are delivered in the order of their ids. Empty = no order.
	OrderingKey string
	// Priority from -100 (bulk) to 100 (critical).
	Priority int
	// Payload is never parsed by the relay.
	Payload []byte
	// ContentType of the payload; empty = application/json.
	ContentType string
	// Headers is a JSON object of strings, sent as flat fields beside the payload; empty = none.
	Headers string
	// AggregateType and AggregateID say what the event belongs to, for people and queries.
	AggregateType, AggregateID string
	// CorrelationID, CausationID and TenantID are kept in columns, so that operators can filter by them.
	CorrelationID, CausationID, TenantID string
	// AvailableAt is the earliest time of delivery; zero = at once.
	AvailableAt time.Time
	// ExpiresAt is the time after which delivery is pointless and the row is abandoned; zero = never.
	ExpiresAt time.Time
}
