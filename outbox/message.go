package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/strictjson"
)

// A Message is one claimed row, as far as a processor needs it.
type Message struct {
	// ID is the row's id; within one claim, messages stand in the order of their ids.
	ID int64
	// MessageID is the UUID in text form.
	MessageID string
	// Stream, Type, OrderingKey, Priority, ContentType, Payload, Headers and CorrelationID stand in the row as written.
	Stream, Type, OrderingKey string
	Priority                  int
	ContentType               string
	Payload                   []byte
	Headers                   string
	CorrelationID             string
	// Attempts spent so far. A claim adds one for a row whose lease ran out while it was alone in its claim: whatever
	// happened to its owner, no other row is to blame.
	Attempts int
	// Crashes is how often a lease on this row ran out since it was last sent with a known outcome.
	Crashes int
	// Expired is true when the row's TTL had passed, by the database's clock, at the moment of the claim.
	Expired bool
	// CreatedAt by the database's clock.
	CreatedAt time.Time
}

// MalformedError says why a row cannot be published as it stands. Rows written by hand in plain SQL can be malformed;
// they are abandoned with this error and do not hold up their neighbours.
type MalformedError struct {
	Column string
	Reason string
}

// Error implements error.
func (e *MalformedError) Error() string {
	return fmt.Sprintf("outbox: malformed row: column %s %s", e.Column, e.Reason)
}

// Outgoing turns the row into what the broker gets. The error is a *MalformedError.
func (m *Message) Outgoing() (brokers.Message, error) {
	out := brokers.Message{
		ID: m.MessageID, Destination: m.Stream, Type: m.Type, OrderingKey: m.OrderingKey, Priority: m.Priority,
		ContentType: m.ContentType, Payload: m.Payload, CorrelationID: m.CorrelationID,
	}
	switch {
	case m.Stream == "":
		return out, &MalformedError{"stream", "is empty: it names the destination, e.g. \"ordering::order\""}
	case m.Type == "":
		return out, &MalformedError{"type", "is empty: it names the event type, e.g. \"Ordering.OrderPlaced.v1\""}
	}
	// No index holds such a key: the row could be neither deferred nor made to wait for an operator.
	if reason := unfit(m.OrderingKey, envelope.MaxOrderingKeyBytes); reason != "" {
		return out, &MalformedError{"ordering_key", reason}
	}
	if m.ContentType != "application/json" { // the common case needs no parsing
		if err := ValidateContentType(m.ContentType); err != nil {
			return out, &MalformedError{"content_type", err.Error()}
		}
	}
	if m.Headers != "" {
		attributes, err := ParseHeaders(m.Headers)
		if err != nil {
			return out, err
		}
		out.Attributes = attributes
	}
	return out, nil
}

// reserved names of flat fields that come from columns of their own.
var reserved = []string{brokers.FieldID, brokers.FieldType, brokers.FieldOrderingKey, brokers.FieldCorrelationID, brokers.FieldContentType}

// ParseHeaders reads the headers column: a JSON object whose values are strings, each name once. The attributes are sorted by name. The
// names id, type, ordering_key, correlation_id and content_type are refused, since the columns of these names fill them.
// The error is a *MalformedError.
func ParseHeaders(text string) ([]brokers.Attribute, error) {
	attributes, ok := plainHeaders(text)
	if !ok {
		var err error
		if attributes, err = decodeHeaders(text); err != nil {
			return nil, err
		}
	}
	for _, a := range attributes {
		if slices.Contains(reserved, a.Name) {
			return nil, &MalformedError{"headers", fmt.Sprintf("holds %q, which has a column of its own", a.Name)}
		}
	}
	return attributes, nil
}

// decodeHeaders reads headers of any form.
func decodeHeaders(text string) ([]brokers.Attribute, error) {
	var headers map[string]*string
	if err := strictjson.Unmarshal([]byte(text), &headers); err != nil {
		reason := "is not a JSON object of strings"
		var (
			syntax    *json.SyntaxError
			ambiguous *strictjson.AmbiguousError
		)
		switch {
		case errors.As(err, &syntax):
			reason = fmt.Sprintf("is not valid JSON at byte %d", syntax.Offset)
		case errors.As(err, &ambiguous):
			reason = "is ambiguous: " + ambiguous.Error()
		}
		return nil, &MalformedError{"headers", reason}
	}
	if headers == nil {
		return nil, &MalformedError{"headers", "is not a JSON object of strings"}
	}
	attributes := make([]brokers.Attribute, 0, len(headers))
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if headers[name] == nil {
			return nil, &MalformedError{"headers", "is not a JSON object of strings"}
		}
		attributes = append(attributes, brokers.Attribute{Name: name, Value: *headers[name]})
	}
	return attributes, nil
}
