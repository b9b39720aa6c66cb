package otelinbox_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	metricsdk "go.opentelemetry.io/otel/sdk/metric"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/telemetry/otelinbox"
)

const (
	producerTrace = "0af7651916cd43dd8448eb211c80319c"
	producerSpan  = "b7ad6b7169203331"
)

// sampled is a message whose producer was traced.
func sampled(age time.Duration) *inbox.Message {
	m := raised(age)
	m.Attributes = map[string]string{"traceparent": "00-" + producerTrace + "-" + producerSpan + "-01", "tracestate": "a=b"}
	return m
}

func newTracer(t *testing.T, linkAfter time.Duration) (*otelinbox.Telemetry, *tracetest.InMemoryExporter, trace.Tracer) {
	t.Helper()
	kept := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(kept))
	o, err := otelinbox.New(otelinbox.Config{TracerProvider: provider, LinkAfter: linkAfter})
	require.NoError(t, err)
	return o, kept, provider.Tracer("test")
}

// one is the only span that was drawn.
func one(t *testing.T, kept *tracetest.InMemoryExporter) tracetest.SpanStub {
	t.Helper()
	spans := kept.GetSpans()
	require.Len(t, spans, 1)
	kept.Reset()
	return spans[0]
}

func attributesOf(span *tracetest.SpanStub) map[string]any {
	all := map[string]any{}
	for _, a := range span.Attributes {
		all[string(a.Key)] = a.Value.AsInterface()
	}
	return all
}

func TestChildWhileItIsYoungAndLinkedRootWhenItIsNot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		linkAfter, age time.Duration
		child          bool
	}{
		"young":         {0, 5 * time.Second, true},
		"old":           {0, 5*time.Second + 1, false},
		"configured":    {time.Hour, 59 * time.Minute, true},
		"never a child": {-1, 0, false},
		"a clock ahead": {0, -time.Minute, true},
		"clock, never":  {-1, -time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o, kept, _ := newTracer(t, c.linkAfter)
				m := sampled(c.age)
				attempts(t, o, m, answers(inbox.Handled))
				span := one(t, kept)
				assert.Equal(t, "process orders", span.Name)
				assert.Equal(t, trace.SpanKindConsumer, span.SpanKind)
				assert.Equal(t, otelinbox.Scope, span.InstrumentationScope.Name)
				assert.Equal(t, map[string]any{
					"messaging.system": "fanout", "messaging.operation.type": "process", "messaging.operation.name": "process",
					"messaging.consumer.group.name": "billing", "messaging.destination.name": "orders",
					"messaging.message.id": m.ID, "messaging.message.conversation_id": "checkout-1",
					"fanout.type": "Ordering.OrderPlaced.v1", "fanout.deliveries": int64(1), "fanout.attempt": int64(1), "fanout.outcome": "handled",
				}, attributesOf(&span))
				if c.child {
					assert.Equal(t, producerTrace, span.SpanContext.TraceID().String())
					assert.Equal(t, producerSpan, span.Parent.SpanID().String())
					assert.True(t, span.Parent.IsRemote())
					assert.Equal(t, "a=b", span.SpanContext.TraceState().String())
					assert.Empty(t, span.Links)
					return
				}
				assert.NotEqual(t, producerTrace, span.SpanContext.TraceID().String())
				assert.False(t, span.Parent.IsValid(), "a root")
				require.Len(t, span.Links, 1)
				assert.Equal(t, producerTrace, span.Links[0].SpanContext.TraceID().String())
				assert.Equal(t, producerSpan, span.Links[0].SpanContext.SpanID().String())
			})
		})
	}
}

// Without the event's time the broker's counts, and without either a trace is not reopened.
func TestAgeOfAMessageWithoutATime(t *testing.T) {
	t.Parallel()
	o, kept, _ := newTracer(t, 0)
	m := sampled(0)
	m.Envelope.Metadata.Headers.Time = time.Time{}
	attempts(t, o, m, answers(inbox.Handled))
	span := one(t, kept)
	assert.False(t, span.Parent.IsValid())
	require.Len(t, span.Links, 1)
	m.Published = time.Now()
	attempts(t, o, m, answers(inbox.Handled))
	span = one(t, kept)
	assert.Equal(t, producerSpan, span.Parent.SpanID().String())
}

// What a handler raises belongs to the span of its message, not to that of the message's producer.
func TestEventsRaisedInsideCarryTheSpanOn(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]*inbox.Message{"young": sampled(0), "old": sampled(time.Hour), "not traced": raised(0)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, kept, _ := newTracer(t, 0)
			var inside envelope.Context
			attempts(t, o, m, inbox.HandlerFunc(func(ctx context.Context, m *inbox.Message) (inbox.Outcome, error) {
				inside = envelope.FromContext(m.Context(ctx)) // the context that a handler's transaction has
				return inbox.Handled, nil
			}))
			span := one(t, kept)
			assert.Equal(t, "00-"+span.SpanContext.TraceID().String()+"-"+span.SpanContext.SpanID().String()+"-01", inside.TraceParent)
			assert.Equal(t, m.ID, inside.CausationID)
			assert.Equal(t, "checkout-1", inside.CorrelationID)
		})
	}
}

// A span that the consumer is in already is not lost.
func TestTheConsumersOwnSpan(t *testing.T) {
	t.Parallel()
	o, kept, tracer := newTracer(t, 0)
	ctx, around := tracer.Start(t.Context(), "poll")
	finish := func(m *inbox.Message) tracetest.SpanStub {
		o.End(o.Begin(ctx, m), &inbox.Attempt{Message: m, Outcome: inbox.Handled})
		return one(t, kept)
	}
	span := finish(raised(0))
	assert.Equal(t, around.SpanContext().SpanID(), span.Parent.SpanID())
	assert.Empty(t, span.Links)
	span = finish(sampled(0))
	assert.Equal(t, producerSpan, span.Parent.SpanID().String())
	require.Len(t, span.Links, 1)
	assert.Equal(t, around.SpanContext().SpanID(), span.Links[0].SpanContext.SpanID())
	span = finish(sampled(time.Hour))
	assert.False(t, span.Parent.IsValid())
	require.Len(t, span.Links, 2)
	around.End()
}

func TestErrorsAreRecorded(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]any{
		"permanent":   inbox.Permanent(errors.New("broken")),
		"unavailable": inbox.Unavailable(errors.New("broken")),
		"failed":      &inbox.FailedError{Attempts: 1, Max: 5, Err: errors.New("broken")},
		"timeout":     context.DeadlineExceeded,
		"canceled":    context.Canceled,
		"panic":       "broken",
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			o, kept, _ := newTracer(t, 0)
			attempts(t, o, sampled(0), answers(err, inbox.Handled))
			spans := kept.GetSpans()
			span := spans[0]
			assert.Equal(t, codes.Error, span.Status.Code)
			assert.Contains(t, span.Attributes, attribute.String("error.type", want))
			assert.Contains(t, span.Attributes, attribute.Int("fanout.attempt", 1))
			assert.NotContains(t, attributesOf(&span), "fanout.outcome")
			require.Len(t, span.Events, 1)
			assert.Equal(t, "exception", span.Events[0].Name)
			assert.Equal(t, want == "permanent", attributesOf(&span)["fanout.abandoned"] == true)
			if want == "panic" {
				assert.Contains(t, span.Status.Description, "the handler panicked: broken")
				var stack string
				for _, a := range span.Events[0].Attributes {
					if a.Key == "exception.stacktrace" {
						stack = a.Value.AsString()
					}
				}
				assert.Contains(t, stack, "integration/otelinbox_test.TestErrorsAreRecorded", "where it panicked")
			}
			if want == "permanent" {
				require.Len(t, spans, 1)
				return
			}
			attempt := 2
			if want == "unavailable" {
				attempt = 1 // that one did not count
			}
			require.Len(t, spans, 2)
			assert.Equal(t, codes.Unset, spans[1].Status.Code)
			assert.Contains(t, spans[1].Attributes, attribute.Int("fanout.attempt", attempt))
		})
	}
}

// An attempt that counts has a number of its own, whatever went before it.
func TestAttemptThatEndsSetbacks(t *testing.T) {
	t.Parallel()
	o, kept, _ := newTracer(t, 0)
	out := inbox.Unavailable(errors.New("out"))
	attempts(t, o, sampled(0), answers(errors.New("broken"), out, inbox.Permanent(errors.New("hopeless"))))
	var numbers []any
	for _, span := range kept.GetSpans() {
		numbers = append(numbers, attributesOf(&span)["fanout.attempt"])
	}
	assert.Equal(t, []any{int64(1), int64(2), int64(2)}, numbers)
}

// A sampler that wants no spans costs little, and nothing that grows.
func TestAllocationsOfSpans(t *testing.T) { // not parallel, as other tests would be counted too
	testenv.NeedExactAllocations(t)
	for name, c := range map[string]struct {
		sampler sdk.Sampler
		most    float64
	}{"sampled": {sdk.AlwaysSample(), 20}, "not sampled": {sdk.NeverSample(), 15}} {
		o, err := otelinbox.New(otelinbox.Config{
			TracerProvider: sdk.NewTracerProvider(sdk.WithSampler(c.sampler)),
			MeterProvider:  metricsdk.NewMeterProvider(metricsdk.WithReader(metricsdk.NewManualReader())),
		})
		require.NoError(t, err)
		m := sampled(time.Second)
		a := &inbox.Attempt{Message: m, Outcome: inbox.Handled, Took: time.Millisecond}
		allocations := testenv.Allocations(100, func() { o.End(o.Begin(t.Context(), m), a) })
		t.Logf("%s: %v allocations", name, allocations)
		assert.LessOrEqual(t, allocations, c.most, name)
	}
}
