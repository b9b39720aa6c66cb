package outbox

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/limits"
)

// A Row is what a writer inserts: one message for one broker, with the payload byte for byte as it
// goes on the wire. Zero values mean NULL or the column's default; MessageID, TargetBroker, Stream,
// Type and Payload are required. The most bytes of each text are those of package envelope, such as
// [envelope.MaxOrderingKeyBytes].
type Row struct {
	// MessageID is the event's on the rows of all brokers, but for what partners get by a second contract
	// or a later one (envelope.As): that has an id derived from the event's and its own type, the same on
	// all of its brokers. It is unique together with TargetBroker.
	MessageID uuid.UUID
	// TargetBroker names the broker that this row is for.
	TargetBroker string
	// Stream is the destination on that broker, e.g. "ordering::order".
	Stream string
	// Type is the event type on the wire, e.g. "Ordering.OrderPlaced.v1".
	Type string
	// OrderingKey: rows of one broker and [Class] with the same key are delivered in the order of their
	// ids. Empty = no order, which is NULL in the table.
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
	// CorrelationID, CausationID and TenantID are kept in columns, so that operators can filter by
	// them.
	CorrelationID, CausationID, TenantID string
	// AvailableAt is the earliest time of delivery, at most five years ahead; zero = at once.
	AvailableAt time.Time
	// ExpiresAt is the time after which delivery is pointless and the row is abandoned; zero =
	// never.
	ExpiresAt time.Time
}

// bounded are the texts of a row that have a bound, by column: what package envelope says of a
// message, and what the tables' CHECK constraints and column widths say of rows that are written by
// plain SQL.
var bounded = [...]struct {
	column string
	most   int
	text   func(*Row) string
}{
	{"target_broker", limits.MaxBrokerNameBytes, func(r *Row) string { return r.TargetBroker }},
	{"stream", limits.MaxStreamBytes, func(r *Row) string { return r.Stream }},
	{"type", limits.MaxTypeBytes, func(r *Row) string { return r.Type }},
	{"ordering_key", envelope.MaxOrderingKeyBytes, func(r *Row) string { return r.OrderingKey }},
	{"content_type", limits.MaxContentTypeBytes, func(r *Row) string { return r.ContentType }},
	{"aggregate_type", limits.MaxAggregateBytes, func(r *Row) string { return r.AggregateType }},
	{"aggregate_id", limits.MaxAggregateBytes, func(r *Row) string { return r.AggregateID }},
	{"correlation_id", limits.MaxContextBytes, func(r *Row) string { return r.CorrelationID }},
	{"causation_id", limits.MaxContextBytes, func(r *Row) string { return r.CausationID }},
	{"tenant_id", limits.MaxContextBytes, func(r *Row) string { return r.TenantID }},
	{"headers", limits.MaxHeadersBytes, func(r *Row) string { return r.Headers }},
}

// earliest and latest are the times that every database takes, and JSON can say in every time zone.
var (
	earliest = time.Date(1000, 1, 1, 0, 0, 0, 0, time.UTC)
	latest   = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC) // exclusive
)

// Validate says what of the row no table takes: a text that is too long, or is not UTF-8 without
// NUL; a time beyond the years 1000 to 9999; a schedule more than five years ahead. [Inserter] calls it for each row. The error is a
// *[MalformedError].
func (r *Row) Validate() error {
	for i := range bounded {
		b := &bounded[i]
		if reason := unfit(b.text(r), b.most); reason != "" {
			return &MalformedError{b.column, reason}
		}
	}
	if reason := outOfTime(r.AvailableAt); reason != "" {
		return &MalformedError{"available_at", reason}
	}
	if !r.AvailableAt.IsZero() && time.Until(r.AvailableAt) > mostAhead {
		return &MalformedError{"available_at", fmt.Sprintf("is %s: schedule a row for five years ahead at most", r.AvailableAt.UTC().Format(time.RFC3339))}
	}
	if reason := outOfTime(r.ExpiresAt); reason != "" {
		return &MalformedError{"expires_at", reason}
	}
	return nil
}

// mostAhead is how far ahead a row can be scheduled: five years, as the tables check.
const mostAhead = 43830 * time.Hour

// outOfTime says what is wrong with a time, "" if nothing is. The zero time is none.
func outOfTime(at time.Time) string {
	if at.IsZero() || !at.Before(earliest) && at.Before(latest) {
		return ""
	}
	return fmt.Sprintf("is %s: use a time in the years 1000 to 9999, or none", at.UTC().Format(time.RFC3339))
}

// contentType of the payload, or the one by default.
func (r *Row) contentType() string {
	if r.ContentType == "" {
		return "application/json"
	}
	return r.ContentType
}

// MalformedError says why a row cannot be published. Rows written by hand in plain SQL
// can be malformed; they are abandoned with this error and do not hold up their neighbours.
type MalformedError struct {
	Column string
	Reason string
}

// Error implements error.
func (e *MalformedError) Error() string {
	return fmt.Sprintf("outbox: malformed row: column %s %s", e.Column, e.Reason)
}

// ValidateOrderingKey says what is wrong with an ordering key that no index holds: such a row could
// be neither deferred nor made to wait for an operator. The error is a *[MalformedError].
func ValidateOrderingKey(key string) error {
	if reason := unfit(key, envelope.MaxOrderingKeyBytes); reason != "" {
		return &MalformedError{"ordering_key", reason}
	}
	return nil
}

// unfit says what is wrong with a text of at most so many bytes, "" if nothing is.
func unfit(text string, most int) string {
	switch {
	case len(text) > most:
		return fmt.Sprintf("has %d bytes, the most is %d (it begins with %.32q): use a shorter one, such as an id or the hash of a longer text",
			len(text), most, text)
	case !utf8.ValidString(text) || strings.IndexByte(text, 0) >= 0:
		return fmt.Sprintf("is %q: use text in UTF-8, without NUL", text)
	default:
		return ""
	}
}

// Bytes is the length of payload and headers.
func (r *Row) Bytes() int { return len(r.Payload) + len(r.Headers) }
