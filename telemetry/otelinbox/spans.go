package otelinbox

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/internal/instrument"
	"github.com/gorm-fanout/fanout/uow"
)

// spanKey finds the span of an attempt in its context, whatever others have put there since.
type spanKey struct{}

// startOptions are those that all spans of a place have in common.
func startOptions(at where) []trace.SpanStartOption {
	return []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(instrument.Operation("process", "process")...),
		trace.WithAttributes(
			instrument.System, attribute.String("messaging.consumer.group.name", at.consumer), instrument.Destination.String(at.source),
		),
	}
}

// begin draws the span of one attempt. Its parent is the span that the event was raised under, so
// that one trace shows the way of a message while another transaction may look at it; the trace of
// a message that has waited for long is closed by then, and the span is a root that is linked with
// it. A span that the consumer is in already is linked too, and is the parent where the event was
// raised under none.
func (t *Telemetry) begin(ctx context.Context, m *inbox.Message) context.Context {
	p := t.at(ctx, m)
	options := append(make([]trace.SpanStartOption, 0, len(p.start)+3), p.start...)
	attributes := append(make([]attribute.KeyValue, 0, 4),
		instrument.MessageID.String(m.ID), instrument.Type.String(m.Type))
	if id := m.Envelope.Metadata.Domain.CorrelationID; id != "" {
		attributes = append(attributes, instrument.Conversation.String(id))
	}
	if m.Deliveries > 0 {
		attributes = append(attributes, attribute.Int("fanout.deliveries", m.Deliveries))
	}
	options = append(options, trace.WithAttributes(attributes...))
	if producer := m.SpanContext(); producer.IsValid() {
		var links []trace.Link
		if around := trace.SpanContextFromContext(ctx); around.IsValid() {
			links = append(links, trace.Link{SpanContext: around})
		}
		if t.young(m, time.Now()) {
			ctx = trace.ContextWithRemoteSpanContext(ctx, producer)
		} else {
			options = append(options, trace.WithNewRoot())
			links = append(links, trace.Link{SpanContext: producer})
		}
		options = append(options, trace.WithLinks(links...))
	}
	ctx, span := t.tracer.Start(ctx, p.span, options...) //nolint:spancheck // End ends it
	return context.WithValue(ctx, spanKey{}, span)       //nolint:spancheck // End ends it
}

// young reports whether the trace of a message's producer may still be looked at. Of a message that
// does not say when it was raised the broker's time counts; where that says nothing either, it is
// not young.
func (t *Telemetry) young(m *inbox.Message, now time.Time) bool {
	at := m.Envelope.Metadata.Headers.Time
	if at.IsZero() {
		at = m.Published
	}
	return t.linkAfter > 0 && now.Sub(at) <= t.linkAfter
}

// end says how the attempt has ended.
func end(span trace.Span, a *inbox.Attempt) {
	defer span.End()
	if !span.IsRecording() {
		return
	}
	if a.Err == nil {
		span.SetAttributes(instrument.Attempt.Int(a.Failures+1), attribute.String("fanout.outcome", string(a.Outcome)))
		return
	}
	attempt := a.Failures
	if !counted(a) {
		attempt++
	}
	span.SetAttributes(instrument.Attempt.Int(attempt), instrument.ErrorType.String(errorType(a.Err)))
	if a.Abandon {
		span.SetAttributes(attribute.Bool("fanout.abandoned", true))
	}
	var (
		panicked *inbox.PanicError
		details  []trace.EventOption
	)
	if errors.As(a.Err, &panicked) {
		details = append(details, trace.WithAttributes(attribute.String("exception.stacktrace", string(panicked.Stack))))
	}
	span.RecordError(a.Err, details...)
	span.SetStatus(codes.Error, a.Err.Error())
}

// errorType is the class of an error, of which there are few.
func errorType(err error) string {
	var panicked *inbox.PanicError
	switch {
	case inbox.IsPermanent(err):
		return "permanent"
	case inbox.IsUnavailable(err):
		return "unavailable"
	case uow.IsConflict(err):
		return "conflict"
	case errors.As(err, &panicked):
		return "panic"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "canceled"
	}
	return "failed"
}
