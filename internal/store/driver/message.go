package driver

import (
	"time"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/outbox"
)

// A Message is one claimed row, as far as a processor needs it.
type Message struct {
	// ID is the row's id; within one claim, messages stand in the order of their ids.
	ID int64
	// MessageID is the UUID in text form.
	MessageID string
	// Stream, Type, OrderingKey, Priority, ContentType, Payload, Headers and CorrelationID stand in
	// the row as written.
	Stream, Type, OrderingKey string
	Priority                  int
	ContentType               string
	Payload                   []byte
	Headers                   string
	// Unread is how many bytes a payload has that was not read, as it has more than [Claim.MaxPayload]
	// allows; else 0.
	Unread        int64
	CorrelationID string
	// Attempts spent so far. A claim adds one for a row whose lease ran out while it was alone in
	// its claim: whatever happened to its owner, no other row is to blame.
	Attempts int
	// Crashes is how often a lease on this row ran out since it was last sent with a known outcome.
	Crashes int
	// ExpiresIn is what was left of the row's TTL at the moment of the claim, by the database's clock.
	// Negative = it had passed, 0 = the row has none, or one of more than ten years.
	ExpiresIn time.Duration
	// CreatedAt by the database's clock.
	CreatedAt time.Time
	// Malformed names a column that the store could not read; nil for none.
	Malformed *outbox.MalformedError
}

// Expired reports whether the row's TTL had passed so long after its claim.
func (m *Message) Expired(after time.Duration) bool {
	return m.ExpiresIn < 0 || m.ExpiresIn > 0 && m.ExpiresIn <= after
}

// Outgoing turns the row into what the broker gets. The error is a *MalformedError.
func (m *Message) Outgoing() (brokers.Message, error) {
	out := brokers.Message{
		ID: m.MessageID, Destination: m.Stream, Type: m.Type, OrderingKey: m.OrderingKey, Priority: m.Priority,
		ContentType: m.ContentType, Payload: m.Payload, CorrelationID: m.CorrelationID,
	}
	switch {
	case m.Malformed != nil:
		return out, m.Malformed
	case m.Stream == "":
		return out, &outbox.MalformedError{Column: "stream", Reason: "is empty: it names the destination, e.g. \"ordering::order\""}
	case m.Type == "":
		return out, &outbox.MalformedError{Column: "type", Reason: "is empty: it names the event type, e.g. \"Ordering.OrderPlaced.v1\""}
	}
	// No index holds such a key: the row could be neither deferred nor made to wait for an
	// operator.
	if err := outbox.ValidateOrderingKey(m.OrderingKey); err != nil {
		return out, err
	}
	if m.ContentType != "application/json" { // the common case needs no parsing
		if err := outbox.ValidateContentType(m.ContentType); err != nil {
			return out, &outbox.MalformedError{Column: "content_type", Reason: err.Error()}
		}
	}
	if m.Headers != "" {
		attributes, err := outbox.ParseHeaders(m.Headers)
		if err != nil {
			return out, err
		}
		out.Attributes = attributes
	}
	return out, nil
}
