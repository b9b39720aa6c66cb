package inbox

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"github.com/gorm-fanout/fanout/envelope"
)

// A Message is one delivery of a message to a consumer. Handlers only read it, except that they may
// set MaxAttempts under [Redeliver].
type Message struct {
	// Consumer is whose effect happens once: messages are distinguished by consumer, source and
	// key. Consumers set the name of their group or subscription, unless they are told another one.
	Consumer string
	// Key is what all copies of a message have in common: the message id, where that is a UUID, as
	// in all messages of Fanout. An event of another producer whose id is none gets a UUID of
	// version 8 that is made of its source and its id.
	Key uuid.UUID
	// ID is the message id as on the wire.
	ID string
	// Type is the wire type, such as "Ordering.OrderPlaced.v1".
	Type string
	// Format is the shape that the message had on the wire.
	Format envelope.Format
	// OrderingKey groups messages that are handled one after the other, in order: the producer's
	// ordering key as it is on the wire, which is the broker's own (of Kafka, the record's key), or the
	// flat field ordering_key, or the partitionkey of a CloudEvent. Empty means that the message has no
	// order: it waits for no other, and no other waits for it.
	OrderingKey string
	// BrokerKey is the ordering key that a [Decoder] is given with the message; see
	// [RawMessage].OrderingKey.
	BrokerKey string
	// Envelope is the message as [envelope.Decode] reads it. Of an event of another producer its
	// headers hold Key, type and time; its data is nil where that is not JSON (see CloudEvent.Binary),
	// and in a message whose payload is the data alone, such as a Protobuf message.
	Envelope *envelope.Message
	// CloudEvent is set where Format is CloudEvents, as it is for what a [Decoder] has read.
	CloudEvent *envelope.CloudEvent
	// Payload and Attributes are what arrived: the envelope's bytes and the flat fields beside
	// them.
	Payload    []byte
	Attributes map[string]string
	// Source is where the message came from as the consumer knows it, whatever the message says:
	// the stream or subscription, unless the consumer was told another name. Ids of different
	// sources are different, so that no one who writes to one of them can use up the id of another
	// one's message.
	Source string
	// Position is its place there: an entry id, a message id of the broker.
	Position string
	// Deliveries is how often the broker has delivered the message to a consumer, this time
	// included; 0 where it does not say.
	Deliveries int
	// Published is when the broker got the message; zero where it does not say.
	Published time.Time
	// MaxAttempts is after how many failed attempts the message becomes a dead letter; 0 stands for
	// [DefaultMaxAttempts]. Consumers set it from their [Retry], and a [Redeliverer] from its
	// configuration.
	MaxAttempts int
}

// maxAttempts is at most what the tables can hold.
func (m *Message) maxAttempts() int {
	return min(cmp.Or(m.MaxAttempts, DefaultMaxAttempts), math.MaxInt32)
}

// checkBudget refuses what is no number of attempts; the message is not to blame.
func (m *Message) checkBudget() error {
	if m.MaxAttempts < 0 {
		return Unavailable(fmt.Errorf("inbox: Message.MaxAttempts is %d: give at least 1, or 0 for %d", m.MaxAttempts, DefaultMaxAttempts))
	}
	return nil
}

// Identity is what a message is known by besides its consumer, as one UUID: made of source, type
// and key (version 5). Of a message that says no source it is the key. Stores that can hold but one
// key use it, so that neither another source nor another type can use up an id.
func (m *Message) Identity() uuid.UUID {
	if m.Source == "" {
		return m.Key
	}
	return uuid.NewSHA1(foreign, []byte(m.Source+"\x00"+m.Type+"\x00"+m.Key.String()))
}

// Context returns ctx for what the message causes: events that are raised under it carry the
// message's id as their causation, its correlation id (its own id where it has none), tenant, actor
// and origin stream; see [envelope.WithCause]. Where ctx has no span, the span that the message was
// raised in becomes the remote parent. A handler's transaction has this context.
func (m *Message) Context(ctx context.Context) context.Context {
	ctx = envelope.WithCause(ctx, m.Envelope)
	if trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	if remote := m.SpanContext(); remote.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, remote)
	}
	return ctx
}

// SpanContext is the span that the message was raised in, by the attributes traceparent and
// tracestate (W3C Trace Context) or, without them, by the envelope. It is invalid where there is
// none.
func (m *Message) SpanContext() trace.SpanContext {
	parent, ok := envelope.ParseTraceParent(m.Attributes["traceparent"])
	if !ok {
		if m.Envelope == nil || m.Envelope.Metadata.Headers.TraceParent == nil {
			return trace.SpanContext{}
		}
		parent = *m.Envelope.Metadata.Headers.TraceParent
	}
	traceID, err1 := trace.TraceIDFromHex(parent.TraceID)
	spanID, err2 := trace.SpanIDFromHex(parent.ParentID)
	if err1 != nil || err2 != nil {
		return trace.SpanContext{}
	}
	config := trace.SpanContextConfig{TraceID: traceID, SpanID: spanID, Remote: true}
	if parent.Sampled {
		config.TraceFlags = trace.FlagsSampled
	}
	if state, err := trace.ParseTraceState(m.Attributes["tracestate"]); err == nil {
		config.TraceState = state
	}
	return trace.NewSpanContext(config)
}
