package dedup

import (
	"context"
	"fmt"
	"maps"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
)

// An Outgoing message is what a handler returns. It is saved with the state as it is, and
// dispatched as it was saved.
type Outgoing struct {
	// ID is the same at each dispatch. Where it is zero, a UUID of version 7 is drawn before the
	// message is saved.
	ID uuid.UUID `json:"id"`
	// Destination is the stream or topic, Type the wire type, OrderingKey groups messages that are
	// to arrive in order: the dispatcher knows what it needs of them.
	Destination string `json:"destination,omitempty"`
	Type        string `json:"type,omitempty"`
	OrderingKey string `json:"ordering_key,omitempty"`
	// Payload is what travels, byte for byte; ContentType says what it is.
	Payload     []byte `json:"payload,omitempty"`
	ContentType string `json:"content_type,omitempty"`
	// Attributes travel beside it.
	Attributes map[string]string `json:"attributes,omitempty"`
	// Receivers are the consumers that process the message by token, by the names that they have
	// for themselves; see inbox.Message. Each gets a token created, of the same value. Without
	// receivers the message gets none: those who remember messages by key need none. Receivers may
	// be named only to a processor that has [Config].Tokens.
	Receivers []string `json:"receivers,omitempty"`
	// Token is drawn by the processor, which overwrites it. It has to travel as [AttributeToken];
	// see [Outgoing.Fields].
	Token string `json:"token,omitempty"`
}

// Fields are the attributes to send beside the payload: Attributes, the ordering key and the token,
// where there are any. A broker that has an ordering key of its own gets that as well. The result
// is the caller's own.
func (o *Outgoing) Fields() map[string]string {
	fields := make(map[string]string, len(o.Attributes)+2)
	maps.Copy(fields, o.Attributes)
	if o.OrderingKey != "" {
		fields[inbox.FieldOrderingKey] = o.OrderingKey
	}
	if o.Token != "" {
		fields[AttributeToken] = o.Token
	}
	return fields
}

// A Dispatcher sends messages: to a broker, or into an outbox of another database. It returns once
// all of them are where they will not get lost. After an error all of them are dispatched again,
// the same; so they are too after a crash.
//
// The context is the message's own, see inbox.Message.Context; that of [Processor.Resume] has no
// message. An error is taken for an outage, so that the message comes again for as long as it
// takes; one marked as inbox.Permanent uses up the message, whose outgoing messages then wait in
// the entity's outbox for Resume.
type Dispatcher interface {
	Dispatch(ctx context.Context, messages []Outgoing) error
}

// DispatcherFunc makes a Dispatcher of a function.
type DispatcherFunc func(ctx context.Context, messages []Outgoing) error

// Dispatch implements Dispatcher.
func (f DispatcherFunc) Dispatch(ctx context.Context, messages []Outgoing) error {
	return f(ctx, messages)
}

// DispatchEach makes a Dispatcher of a function that sends a single message. It stops at the first
// error, so that no message overtakes one that failed.
func DispatchEach(send func(ctx context.Context, message Outgoing) error) Dispatcher {
	return DispatcherFunc(func(ctx context.Context, messages []Outgoing) error {
		for i := range messages {
			if err := send(ctx, messages[i]); err != nil {
				return fmt.Errorf("message %d of %d, %s for %s: %w", i+1, len(messages), messages[i].ID, messages[i].Destination, err)
			}
		}
		return nil
	})
}

// Event makes an outgoing message, in the internal form, of an event of the catalog, raised by
// source. ctx is the handler's: correlation, causation, tenant and trace come from it. Destination
// is the category of the source, the ordering key what the catalog says.
func Event(ctx context.Context, catalog *envelope.Catalog, source envelope.Source, data any, opts ...envelope.Option) (Outgoing, error) {
	sealed, err := catalog.Seal(envelope.NewEvent(data, opts...), source, envelope.FromContext(ctx))
	if err != nil {
		return Outgoing{}, fmt.Errorf("dedup: seal an outgoing event: %w", err)
	}
	payload, err := sealed.MarshalInternal()
	if err != nil {
		return Outgoing{}, fmt.Errorf("dedup: encode an outgoing event: %w", err)
	}
	headers, routing := &sealed.Metadata.Headers, &sealed.Routing
	return Outgoing{
		ID: headers.ID, Destination: routing.Destination, Type: headers.Type, OrderingKey: routing.OrderingKey,
		Payload: payload, ContentType: "application/json", Attributes: traceFields(routing),
	}, nil
}

// traceFields are the flat fields of the span that the event was raised in.
func traceFields(routing *envelope.Routing) map[string]string {
	if routing.TraceParent == "" {
		return nil
	}
	fields := map[string]string{"traceparent": routing.TraceParent}
	if routing.TraceState != "" {
		fields["tracestate"] = routing.TraceState
	}
	return fields
}
