package fanouttest

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
)

// Event is one event as a commit would write it.
type Event struct {
	// Data is the value that was raised or published. What is sent is what it was then: see Payload
	// and Message.
	Data any
	// ID is the message id: the same on all brokers, and the same again when the transaction is
	// repeated.
	ID uuid.UUID
	// Type is the event type on the wire, such as "Ordering.OrderPlaced.v1".
	Type string
	// Stream is the destination on the brokers, such as "ordering::order".
	Stream string
	// Aggregate is the name of the type that raised the event, such as "Order", and AggregateID its
	// primary key as text. Both are empty for an event without an aggregate.
	Aggregate, AggregateID string
	// Brokers are the names of those that get the event: the internal one first, then external ones
	// in the order of the routing.
	Brokers []string
	// OrderingKey: events with the same one are delivered in order, those with a Priority below 0 in one
	// of their own. Empty = no order.
	OrderingKey string
	// Priority from -100 to 100; see envelope.PriorityLevel.
	Priority int
	// NotBefore is the earliest time of delivery, ExpiresAt the one after which delivery is
	// pointless; zero = at once, and never.
	NotBefore, ExpiresAt time.Time
	// CorrelationID, CausationID and TenantID come from the context of the statement that captured
	// the event. A correlation id that is not there is that of the unit of work: the message id of
	// its first event.
	CorrelationID, CausationID, TenantID string

	copies map[string][]wire // by broker: as a rule one, of an event with contracts one each
}

// wire is what one broker gets.
type wire struct {
	payload []byte
	message *envelope.Message
}

// Payload returns what a broker would get, byte for byte; nil where the event does not go there. Of
// an event that a broker gets once for each of several contracts (envelope.As) it is the first:
// see Payloads. The slice is shared: do not write into it.
func (e Event) Payload(broker string) []byte {
	if copies := e.copies[broker]; len(copies) > 0 {
		return copies[0].payload
	}
	return nil
}

// Payloads returns all that a broker would get, in the order of the event's contracts.
func (e Event) Payloads(broker string) [][]byte {
	var all [][]byte
	for _, one := range e.copies[broker] {
		all = append(all, one.payload)
	}
	return all
}

// Message returns what a consumer of a broker would decode from the payload with envelope.Decode;
// nil where the event does not go there. For an external broker it holds what leaves and nothing
// else. Of several it is the first: see Messages.
func (e Event) Message(broker string) *envelope.Message {
	if copies := e.copies[broker]; len(copies) > 0 {
		return copies[0].message
	}
	return nil
}

// Messages returns all that a consumer of a broker would decode, in the order of the event's contracts.
func (e Event) Messages(broker string) []*envelope.Message {
	var all []*envelope.Message
	for _, one := range e.copies[broker] {
		all = append(all, one.message)
	}
	return all
}

// String is a short description for logs.
func (e Event) String() string {
	var by string
	if e.Aggregate != "" {
		by = fmt.Sprintf(" by %s %s", e.Aggregate, e.AggregateID)
	}
	return fmt.Sprintf("%s%s to %s", e.Type, by, strings.Join(e.Brokers, ", "))
}

// Data returns the events as they were raised, to be compared with what is expected. It is never
// nil.
func Data(events []Event) []any {
	data := make([]any, len(events))
	for i := range events {
		data[i] = events[i].Data
	}
	return data
}

// Of returns those events that are of type E, as they were raised. It is never nil.
func Of[E any](events []Event) []E {
	data := []E{}
	for i := range events {
		if event, ok := events[i].Data.(E); ok {
			data = append(data, event)
		}
	}
	return data
}

// eventsOf describes what was captured, without the messages in except.
func eventsOf(t TB, captured []gormplugin.Captured, except map[uuid.UUID]struct{}) []Event {
	t.Helper()
	events := make([]Event, 0, len(captured))
	for i := range captured {
		if _, known := except[captured[i].Rows[0].MessageID]; known {
			continue
		}
		event, err := eventOf(&captured[i])
		if err != nil {
			t.Fatalf("fanouttest: %v", err)
		}
		events = append(events, event)
	}
	return events
}

func eventOf(c *gormplugin.Captured) (Event, error) {
	first := c.Rows[0] // the internal broker's: there always is one
	event := Event{
		Data: c.Data, ID: first.MessageID, Type: first.Type, Stream: first.Stream, Aggregate: c.Source.Aggregate, AggregateID: c.Source.ID,
		OrderingKey: first.OrderingKey, Priority: first.Priority, NotBefore: first.AvailableAt, ExpiresAt: first.ExpiresAt,
		CorrelationID: first.CorrelationID, CausationID: first.CausationID, TenantID: first.TenantID,
		copies: make(map[string][]wire, len(c.Rows)),
	}
	for i := range c.Rows {
		row := &c.Rows[i]
		copied, err := wireOf(row)
		if err != nil {
			return Event{}, err
		}
		if len(event.copies[row.TargetBroker]) == 0 {
			event.Brokers = append(event.Brokers, row.TargetBroker)
		}
		event.copies[row.TargetBroker] = append(event.copies[row.TargetBroker], copied)
	}
	return event, nil
}

func wireOf(row *outbox.Row) (wire, error) {
	_, message, err := envelope.Decode(row.Payload)
	if err != nil {
		return wire{}, fmt.Errorf("%s for %s: %w", row.Type, row.TargetBroker, err)
	}
	return wire{payload: row.Payload, message: message}, nil
}
