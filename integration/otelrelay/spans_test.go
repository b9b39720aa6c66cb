package otelrelay_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox/relay"
	"github.com/gorm-fanout/fanout/telemetry/otelrelay"
)

// message n of a call, of a producer of its own.
type message struct {
	sampled bool
	age     time.Duration
	err     error
	bare    bool // without a traceparent
}

func traceID(n int) string { return fmt.Sprintf("%032x", n+1) }
func spanID(n int) string  { return fmt.Sprintf("%016x", n+1) }

func drawn(t *testing.T, cfg otelrelay.TracerConfig, messages ...message) (batch tracetest.SpanStub, single []tracetest.SpanStub) {
	t.Helper()
	kept := tracetest.NewInMemoryExporter()
	tracer, err := otelrelay.NewTracer(sdk.NewTracerProvider(sdk.WithSyncer(kept)), cfg)
	require.NoError(t, err)
	o := tracer.Observe("orders", "events")
	call := &relay.Call{Began: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	var results []brokers.Result
	for n, m := range messages {
		flags := "00"
		if m.sampled {
			flags = "01"
		}
		out := brokers.Message{ID: fmt.Sprint(n), Destination: "d", Type: "T.v1", CorrelationID: "c"}
		if !m.bare {
			out.Attributes = []brokers.Attribute{{Name: "traceparent", Value: "00-" + traceID(n) + "-" + spanID(n) + "-" + flags}, {Name: "tracestate", Value: "a=b"}}
		}
		call.Outgoing = append(call.Outgoing, out)
		call.Messages = append(call.Messages, &driver.Message{CreatedAt: call.Began.Add(time.Second - m.age), Attempts: n})
		results = append(results, brokers.Result{Err: m.err})
	}
	ctx := o.Publishing(t.Context(), call)
	require.True(t, trace.SpanContextFromContext(ctx).IsValid(), "the broker's client finds the call's span")
	call.Results, call.Took = results, time.Second
	o.Published(ctx, call)
	for _, span := range kept.GetSpans() {
		if span.Name == "publish events" {
			batch = span
			continue
		}
		single = append(single, span)
	}
	return batch, single
}

func TestChildWhileItIsSoonAndLinkWhenItIsLate(t *testing.T) {
	t.Parallel()
	batch, single := drawn(t, otelrelay.TracerConfig{},
		message{sampled: true, age: 5 * time.Second}, message{sampled: true, age: 5*time.Second + 1}, message{age: time.Second}, message{bare: true})
	require.Len(t, single, 2, "of those whose producer was sampled")
	soon, late := single[0], single[1]

	assert.Equal(t, traceID(0), soon.SpanContext.TraceID().String())
	assert.Equal(t, spanID(0), soon.Parent.SpanID().String())
	assert.True(t, soon.Parent.IsRemote())
	assert.Equal(t, "a=b", soon.SpanContext.TraceState().String())
	require.Len(t, soon.Links, 1)
	assert.Equal(t, batch.SpanContext.SpanID(), soon.Links[0].SpanContext.SpanID())

	assert.Equal(t, batch.SpanContext.TraceID(), late.SpanContext.TraceID())
	assert.Equal(t, batch.SpanContext.SpanID(), late.Parent.SpanID())
	require.Len(t, late.Links, 1)
	assert.Equal(t, traceID(1), late.Links[0].SpanContext.TraceID().String())
	assert.Equal(t, spanID(1), late.Links[0].SpanContext.SpanID().String())

	assert.False(t, batch.Parent.IsValid())
	var linked []string
	for _, link := range batch.Links {
		linked = append(linked, link.SpanContext.SpanID().String())
	}
	assert.Equal(t, []string{spanID(0), spanID(1), spanID(2)}, linked)
	assert.Equal(t, codes.Unset, batch.Status.Code)
	for _, span := range []tracetest.SpanStub{batch, soon, late} {
		assert.Equal(t, time.Second, span.EndTime.Sub(span.StartTime))
		assert.Contains(t, span.Attributes, attribute.String("database", "orders"))
		assert.Contains(t, span.Attributes, attribute.String("broker", "events"))
	}
	assert.Equal(t, trace.SpanKindClient, batch.SpanKind)
	assert.Equal(t, trace.SpanKindProducer, soon.SpanKind)
	assert.Contains(t, late.Attributes, attribute.Int("fanout.attempt", 2))
	assert.Contains(t, late.Attributes, attribute.String("messaging.message.conversation_id", "c"))
	assert.Equal(t, "send d", soon.Name)
}

func TestSpansOfFailures(t *testing.T) {
	t.Parallel()
	batch, single := drawn(t, otelrelay.TracerConfig{LinkAfter: -1},
		message{sampled: true}, message{sampled: true, err: brokers.Permanent(errors.New("too large"))}, message{sampled: true, err: brokers.ErrNotSent})
	require.Len(t, single, 3)
	assert.Equal(t, codes.Error, batch.Status.Code)
	assert.Equal(t, "2 of 3 messages were not taken: permanent: too large", batch.Status.Description)
	assert.Contains(t, batch.Attributes, attribute.String("error.type", "permanent"))
	assert.Equal(t, codes.Unset, single[0].Status.Code)
	assert.Contains(t, single[1].Attributes, attribute.String("error.type", "permanent"))
	assert.Contains(t, single[2].Attributes, attribute.String("error.type", "not_sent"))
	assert.Equal(t, batch.SpanContext.SpanID(), single[0].Parent.SpanID(), "never a child")
}

func TestLinksAndSpansAreBounded(t *testing.T) {
	t.Parallel()
	messages := make([]message, 10)
	for i := range messages {
		messages[i].sampled = i >= 7
	}
	batch, single := drawn(t, otelrelay.TracerConfig{MaxLinks: 4, MaxSpans: 2}, messages...)
	require.Len(t, batch.Links, 4)
	assert.Equal(t, spanID(7), batch.Links[0].SpanContext.SpanID().String(), "those that are sampled come first")
	assert.Equal(t, spanID(0), batch.Links[3].SpanContext.SpanID().String())
	assert.Len(t, single, 2)
	batch, single = drawn(t, otelrelay.TracerConfig{MaxLinks: -1, MaxSpans: -1}, messages...)
	assert.Empty(t, batch.Links)
	assert.Empty(t, single)
}

func TestTracerWithoutAProvider(t *testing.T) {
	t.Parallel()
	_, err := otelrelay.NewTracer(nil, otelrelay.TracerConfig{})
	require.ErrorContains(t, err, "no tracer provider")
}
