package otelrelay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/instrument"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

const (
	// defaultLinkAfter is the default of [TracerConfig.LinkAfter].
	defaultLinkAfter = 5 * time.Second
	// defaultMaxLinks is the default of [TracerConfig.MaxLinks]: OpenTelemetry's SDK drops links
	// beyond 128.
	defaultMaxLinks = 128
	// defaultMaxSpans is the default of [TracerConfig.MaxSpans].
	defaultMaxSpans = 128
)

// TracerConfig configures a [Tracer]. Zero values take the defaults.
type TracerConfig struct {
	// LinkAfter is the age of a row from which its message's span is linked with its producer's
	// instead of being its child. Default 5 s; negative: it is never a child.
	LinkAfter time.Duration
	// MaxLinks bounds the links of the span of one call. Default 128; negative: none.
	MaxLinks int
	// MaxSpans bounds the messages of one call that get a span of their own. Default 128; negative:
	// none.
	MaxSpans int
}

// A Tracer is a [relay.Observer] that draws spans. It is safe for concurrent use.
type Tracer struct {
	cfg    TracerConfig
	tracer trace.Tracer
}

// NewTracer makes a tracer. The error says that there is no provider.
func NewTracer(provider trace.TracerProvider, cfg TracerConfig) (*Tracer, error) {
	if provider == nil {
		return nil, errors.New("otelrelay: no tracer provider: pass the one of your OpenTelemetry set-up")
	}
	cfg.LinkAfter = cmp.Or(cfg.LinkAfter, defaultLinkAfter)
	cfg.MaxLinks = cmp.Or(cfg.MaxLinks, defaultMaxLinks)
	cfg.MaxSpans = cmp.Or(cfg.MaxSpans, defaultMaxSpans)
	return &Tracer{cfg: cfg, tracer: provider.Tracer(Scope)}, nil
}

// Observe implements relay.Observer.
func (t *Tracer) Observe(database, broker string) relay.ProcessorObserver {
	return &spanObserver{
		Tracer: t, name: "publish " + broker,
		place: append(instrument.Operation("send", "publish"),
			instrument.System, attribute.String("database", database), attribute.String("broker", broker)),
	}
}

// spanObserver draws the spans of one processor.
type spanObserver struct {
	*Tracer

	name  string
	place []attribute.KeyValue
}

// Claimed implements relay.ProcessorObserver.
func (o *spanObserver) Claimed(context.Context, int, time.Duration) {}

// Completing implements relay.ProcessorObserver.
func (o *spanObserver) Completing(context.Context, *driver.Completion) {}

// LeaseLost implements relay.ProcessorObserver.
func (o *spanObserver) LeaseLost(context.Context, int) {}

// callKey finds the span of a call in its context, whatever others have put there since.
type callKey struct{}

// Publishing implements relay.ProcessorObserver: it begins the span of a call, in a trace of its
// own.
func (o *spanObserver) Publishing(ctx context.Context, call *relay.Call) context.Context {
	ctx, span := o.tracer.Start(ctx, o.name, //nolint:spancheck // Published ends it
		trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(call.Began), trace.WithAttributes(o.place...),
		trace.WithAttributes(attribute.Int("messaging.batch.message_count", len(call.Messages))),
		trace.WithLinks(o.producers(ctx, call)...),
	)
	return context.WithValue(ctx, callKey{}, span) //nolint:spancheck // Published ends it
}

// producers are the links of a call: each producer once, those that are sampled first.
func (o *spanObserver) producers(ctx context.Context, call *relay.Call) (links []trace.Link) {
	seen := map[trace.SpanID]bool{}
	for _, sampled := range []bool{true, false} {
		for i := range call.Outgoing {
			if len(links) >= o.cfg.MaxLinks {
				return links
			}
			producer := producerOf(ctx, &call.Outgoing[i])
			if producer.IsValid() && producer.IsSampled() == sampled && !seen[producer.SpanID()] {
				seen[producer.SpanID()] = true
				links = append(links, trace.Link{SpanContext: producer})
			}
		}
	}
	return links
}

// Published implements relay.ProcessorObserver: it draws the spans of the messages and ends that of
// the call.
func (o *spanObserver) Published(ctx context.Context, call *relay.Call) {
	span, ok := ctx.Value(callKey{}).(trace.Span)
	if !ok {
		return
	}
	end := call.Began.Add(call.Took)
	failed, drawn := 0, 0
	var first error
	for i := range call.Results {
		if err := call.Results[i].Err; err != nil {
			failed++
			if first == nil {
				first = err
			}
		}
		if drawn < o.cfg.MaxSpans && o.send(ctx, span, call, i, end) {
			drawn++
		}
	}
	if failed > 0 {
		span.SetAttributes(attribute.Int("fanout.failed", failed), errorType(first))
		span.SetStatus(codes.Error, fmt.Sprintf("%d of %d messages were not taken: %v", failed, len(call.Results), first))
	}
	span.End(trace.WithTimestamp(end))
}

// send draws the span of one message, if its producer was sampled.
func (o *spanObserver) send(ctx context.Context, batch trace.Span, call *relay.Call, i int, end time.Time) (drawn bool) {
	out, err := &call.Outgoing[i], call.Results[i].Err
	producer := producerOf(ctx, out)
	if !producer.IsSampled() {
		return false
	}
	parent, linked := producer, batch.SpanContext()
	if call.Age(i) > o.cfg.LinkAfter {
		parent, linked = linked, producer
	}
	_, span := o.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, parent), "send "+out.Destination,
		trace.WithSpanKind(trace.SpanKindProducer), trace.WithTimestamp(call.Began), trace.WithAttributes(o.place...),
		trace.WithLinks(trace.Link{SpanContext: linked}),
		trace.WithAttributes(
			instrument.Destination.String(out.Destination), instrument.MessageID.String(out.ID),
			instrument.Type.String(out.Type), instrument.Attempt.Int(call.Messages[i].Attempts+1),
			attribute.Float64("fanout.age", call.Age(i).Seconds()),
		),
	)
	if out.CorrelationID != "" {
		span.SetAttributes(instrument.Conversation.String(out.CorrelationID))
	}
	if err != nil {
		span.SetAttributes(errorType(err))
		span.SetStatus(codes.Error, err.Error())
	}
	span.End(trace.WithTimestamp(end))
	return true
}

func errorType(err error) attribute.KeyValue {
	class, _ := brokers.Classify(err)
	return instrument.ErrorType.String(string(class))
}

// producerOf reads the W3C trace context of a message; it is not valid where there is none, or a
// malformed one.
func producerOf(ctx context.Context, m *brokers.Message) trace.SpanContext {
	ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{}) // the span that we are in is another one
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(ctx, fields{m}))
}

// fields are the attributes of a message, to be read.
type fields struct{ message *brokers.Message }

// Get implements propagation.TextMapCarrier.
func (f fields) Get(name string) string {
	for i := range f.message.Attributes {
		if f.message.Attributes[i].Name == name {
			return f.message.Attributes[i].Value
		}
	}
	return ""
}

// Set implements propagation.TextMapCarrier. Nothing is changed: the wire has the producer's
// context.
func (f fields) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (f fields) Keys() []string { return []string{brokers.FieldTraceParent, brokers.FieldTraceState} }
