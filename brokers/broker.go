// Package brokers is the contract between Fanout's processors and a message broker.
//
// An implementation publishes a slice of messages in bulk and answers with one [Result] per
// message. That is all a processor needs: claiming, retrying, backing off and fencing stay on its
// side of the contract. Implementations live in packages of their own, so that a program links only
// the clients it uses. Package brokertest holds the conformance suite that every implementation
// must pass.
package brokers

import (
	"context"
	"time"
)

// A Broker publishes messages. All methods are safe for concurrent use.
type Broker interface {
	// Publish sends msgs in order and returns exactly one Result per message, at the same index.
	//
	// Order: for two messages with the same non-empty OrderingKey, the later one must not become
	// visible to consumers unless the earlier one did. When a message fails, the later messages of
	// its key in the same call are therefore not sent, and their Result carries [ErrNotSent].
	// Messages without a key, or with another key, are not held back. An implementation must not
	// retry in a way that lets a later message of a key overtake an earlier one.
	//
	// Publish returns once the broker has confirmed each message or the context has ended. What was
	// not handed to the broker when the context ended is reported as ErrNotSent; what was, but is
	// unconfirmed, as a retryable error: it may be delivered twice, under the same message id, and
	// is never lost. Where it is the broker that gave no answer before the deadline, unavailable is
	// the better class: silence does not name a message.
	//
	// At an outage an implementation may stop: the messages that ran into it are unavailable, the
	// rest of the call (of the destination, where only that is out) is ErrNotSent, whatever their
	// keys.
	//
	// Attributes and the correlation id are optional: they come from clients, tracers and other
	// programs, and a message is never lost because of them. What the broker does not take is left
	// out, and named in the Result. The id and the type are required. [FieldSignature] is the last to
	// be left out: a consumer that verifies refuses a message without it.
	//
	// Errors are classified with [Permanent], [Retryable], [Refused], [Unavailable] and
	// [Unreachable]; an unclassified error does not say whose it is, and counts as Refused.
	Publish(ctx context.Context, msgs []Message) []Result

	// Capabilities tells what this broker can do. The answer does not change during the life of the
	// broker.
	Capabilities() Capabilities

	// Ping asks whether the broker can be reached; it publishes nothing. After Close it is an
	// error, such as ErrClosed.
	Ping(ctx context.Context) error

	// Close waits for publishes in progress, at most until ctx ends, and releases connections.
	// Publish after Close answers ErrClosed for every message. A second Close does nothing.
	Close(ctx context.Context) error
}

// A DestinationChecker is a broker that can tell before the first message whether it takes messages
// for a destination. It is optional, for tools that check a configuration; processors find out by
// publishing.
type DestinationChecker interface {
	// CheckDestination returns why messages for a destination would not be taken, classified like
	// an error of Publish: the topic is missing, for example, or the credentials may not publish to
	// it. It creates and publishes nothing. Nil says that nothing speaks against it, also where the
	// credentials may not look; such a destination can still turn out to be unavailable.
	CheckDestination(ctx context.Context, destination string) error
}

// A Message is one delivery to one destination of one broker. The payload is opaque: it is what the
// row holds. Implementations must not modify a message nor keep its slices after Publish has
// returned.
type Message struct {
	// ID is the message id (a UUID in text form), the same on every broker and on every attempt.
	// Consumers deduplicate by it.
	ID string
	// Destination is the stream or topic, e.g. "ordering::order".
	Destination string
	// Type is the event type as it goes on the wire, e.g. "Ordering.OrderPlaced.v1".
	Type string
	// OrderingKey groups messages that must arrive in order; empty = no order is asked for. It
	// travels, as the flat field ordering_key or as the broker's own ordering key, since consumers
	// handle the messages of one key one after the other.
	OrderingKey string
	// Priority is the message's priority, -100 (bulk) to 100 (critical), 0 = normal.
	Priority int
	// ContentType of Payload, e.g. "application/json".
	ContentType string
	// Payload is the envelope, byte for byte as it goes on the wire.
	Payload []byte
	// CorrelationID is empty where there is none.
	CorrelationID string
	// ExpiresIn is what is left of the message's time to live, always positive; 0 = it has none. A
	// broker whose messages can expire by themselves hands it on; for others it means nothing, since
	// the relay sends no message whose time is over.
	ExpiresIn time.Duration
	// Attributes are further flat fields that a consumer can filter on without parsing the payload,
	// such as traceparent and tracestate. They never contain "id", "type", "ordering_key",
	// "correlation_id" or "content-type", which have fields of their own.
	Attributes []Attribute
}

// An Attribute is one flat field of a message.
type Attribute struct{ Name, Value string }

// A Result is the outcome of one message.
type Result struct {
	// BrokerMessageID is the id that the broker gave the message (a Redis stream entry id, a
	// Pub/Sub server id); empty when it gives none.
	BrokerMessageID string
	// Omitted names the flat fields, attributes mostly, without which the message went, since the
	// broker takes none of such a name or length, or no more of them. Nil, as nearly always: it
	// went with all of them.
	Omitted []string
	// Err is nil when the broker confirmed the message.
	Err error
}

// Capabilities of a broker.
type Capabilities struct {
	// Ordering is true when messages with the same ordering key arrive in the order in which they
	// were published.
	Ordering bool
	// MaxMessageBytes is the largest payload that the broker takes; 0 = no limit known.
	MaxMessageBytes int
	// MaxBatch is the number of messages that the broker likes best in one Publish call; 0 = no
	// preference. A processor begins with 100 and goes up to it while calls take less than a
	// second; never beyond the rows of a claim.
	MaxBatch int
	// KeysInTurn is true when a message of an ordering key is sent only once the one before it is
	// confirmed. A processor then takes fewer rows of a key at a time, so that a key with many does not
	// hold up others.
	KeysInTurn bool
}

// Takes reports whether a payload of so many bytes is not too large for the broker.
func (c Capabilities) Takes(bytes int) bool {
	return c.MaxMessageBytes <= 0 || bytes <= c.MaxMessageBytes
}

// Fields returns the flat fields of a message in a fixed order: id, type, ordering_key and
// correlation_id when present, content-type when it is not DefaultContentType, then the attributes
// in their order. It is what a broker with headers, attributes or stream fields sends beside the
// payload. A broker that has an ordering key of its own sends that instead of the field
// ordering_key. yield returning false stops the walk.
func (m *Message) Fields(yield func(name, value string) bool) {
	if !yield(FieldID, m.ID) || !yield(FieldType, m.Type) {
		return
	}
	if m.OrderingKey != "" && !yield(FieldOrderingKey, m.OrderingKey) {
		return
	}
	if m.CorrelationID != "" && !yield(FieldCorrelationID, m.CorrelationID) {
		return
	}
	if m.ContentType != "" && m.ContentType != DefaultContentType && !yield(FieldContentType, m.ContentType) {
		return
	}
	for _, attribute := range m.Attributes {
		if !yield(attribute.Name, attribute.Value) {
			return
		}
	}
}

// Names of the flat fields; a contract with consumers in other languages. The content type has the
// name by which the bindings of CloudEvents to Kafka, Pub/Sub and NATS know an event; on Pub/Sub, where
// the SDK for Go looks for Content-Type, CloudEvents have that, too. Source:
// https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md
const (
	FieldID            = "id"
	FieldType          = "type"
	FieldOrderingKey   = "ordering_key"
	FieldCorrelationID = "correlation_id"
	FieldContentType   = "content-type"
	FieldTraceParent   = "traceparent"
	FieldTraceState    = "tracestate"
	// FieldSignature is there where the relay signs; see package signature.
	FieldSignature = "signature"
)

// DefaultContentType goes without saying on the wire: a message without the field content-type has
// it.
const DefaultContentType = "application/json"

// DefaultPublishTimeout bounds one Publish call of a processor; it must stay below the lease.
const DefaultPublishTimeout = 30 * time.Second
