package envelope_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/gorm-fanout/fanout/envelope"
)

// Neither a child context nor a reader changes what others see.
func TestContextIsNotShared(t *testing.T) {
	t.Parallel()
	parent := envelope.WithExtension(t.Context(), "a", 1)
	parent = envelope.WithPriority(parent, envelope.PriorityLow)
	child := envelope.WithExtension(parent, "b", 2)
	child = envelope.WithTenantID(child, "acme")

	cx := envelope.FromContext(parent)
	cx.SetExtension("c", 3)
	*cx.Priority = envelope.PriorityHigh
	require.Equal(t, envelope.Context{Priority: ptr(envelope.PriorityLow), Extensions: map[string]any{"a": 1}},
		envelope.FromContext(parent))
	require.Equal(t, map[string]any{"a": 1, "b": 2}, envelope.FromContext(child).Extensions)

	var zero envelope.Context
	zero.SetExtension("a", 1)
	require.Equal(t, map[string]any{"a": 1}, zero.Extensions)
}

func TestFromContextWithSpan(t *testing.T) {
	t.Parallel()
	state, err := trace.ParseTraceState("vendor=b:2")
	require.NoError(t, err)
	span := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID:    trace.TraceID{0: 0xab, 15: 0x01},
		SpanID:     trace.SpanID{7: 0xff},
		TraceFlags: trace.FlagsSampled,
		TraceState: state,
	})
	ctx := envelope.WithTrace(t.Context(), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "vendor=a:1")
	cx := envelope.FromContext(trace.ContextWithSpanContext(ctx, span))
	require.Equal(t, "00-ab000000000000000000000000000001-00000000000000ff-01", cx.TraceParent)
	require.Equal(t, "vendor=b:2", cx.TraceState)

	unsampled := trace.ContextWithSpanContext(ctx, span.WithTraceFlags(0))
	require.Equal(t, "00-ab000000000000000000000000000001-00000000000000ff-00", envelope.FromContext(unsampled).TraceParent)

	invalid := trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	require.Equal(t, "vendor=a:1", envelope.FromContext(invalid).TraceState)
}

// A chain of messages: each names the one before, all the whole.
func TestWithCause(t *testing.T) {
	t.Parallel()
	c := newCatalog(t)
	first := seal(t, c, placed(), order42, envelope.Context{TenantID: "acme", Actor: "ada"})
	cx := envelope.FromContext(envelope.WithCause(t.Context(), first))
	require.EqualExportedValues(t, envelope.Context{
		CorrelationID: fixedID.String(), CausationID: fixedID.String(), OriginStream: "ordering::order-42", TenantID: "acme", Actor: "ada",
	}, cx)

	require.Equal(t, fixedID.String(), first.Metadata.Domain.CorrelationID, "an event that is sealed alone has its own")
	require.Equal(t, fixedID.String(), first.Routing.CorrelationID)

	second := seal(t, c, envelope.NewEvent(OrderAudited{}), envelope.Source{}, cx)
	cx = envelope.FromContext(envelope.WithCause(t.Context(), second))
	require.Equal(t, fixedID.String(), cx.CorrelationID)
	require.Equal(t, second.Metadata.Headers.ID.String(), cx.CausationID)
	require.Equal(t, "ordering", cx.OriginStream)
}

// The stream of the message that caused another leaves where it is listed and that message was published itself.
func TestOriginOfWhatWasPublished(t *testing.T) {
	t.Parallel()
	c := newCatalog(t)
	foreign := seal(t, c, placed(), order42, envelope.Context{})
	foreign.Metadata.Headers.Type = "Billing.InvoicePaid.v1"
	published := envelope.WithCause(t.Context(), seal(t, c, placed(), order42, envelope.Context{}))
	for name, test := range map[string]struct {
		ctx    context.Context
		leaves bool
	}{
		"published":         {published, true},
		"not published":     {envelope.WithCause(t.Context(), seal(t, c, envelope.NewEvent(OrderAudited{}), order42, envelope.Context{})), false},
		"of another":        {envelope.WithCause(t.Context(), foreign), false},
		"set":               {envelope.WithOriginStream(t.Context(), "ordering::order-42"), false},
		"set in its place":  {envelope.WithOriginStream(published, "ordering::order-42"), false},
		"there is no cause": {t.Context(), false},
	} {
		m := seal(t, c, placed(), order42, envelope.FromContext(test.ctx))
		for _, include := range []envelope.Include{{OriginStream: true}, {}} {
			external, err := m.MarshalExternal(include)
			require.NoError(t, err)
			assert.Equal(t, test.leaves && include.OriginStream, strings.Contains(string(external), `"origin_stream":"ordering::order-42"`), name)
			assert.Equal(t, test.leaves && include.OriginStream, strings.Contains(string(external), "origin_stream"), name)
		}
		internal, err := m.MarshalInternal()
		require.NoError(t, err)
		assert.Equal(t, name != "there is no cause", strings.Contains(string(internal), `"origin_stream":"ordering::order-42"`), name)
	}
}

func TestParseTraceParent(t *testing.T) {
	t.Parallel()
	const traceID, spanID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for header, want := range map[string]*envelope.TraceParent{
		"00-" + traceID + "-" + spanID + "-01":                            {TraceID: traceID, ParentID: spanID, Sampled: true},
		"00-" + traceID + "-" + spanID + "-00":                            {TraceID: traceID, ParentID: spanID},
		"00-" + traceID + "-" + spanID + "-0a":                            {TraceID: traceID, ParentID: spanID},
		"00-" + traceID + "-" + spanID + "-ff":                            {TraceID: traceID, ParentID: spanID, Sampled: true},
		"cc-" + traceID + "-" + spanID + "-01":                            {TraceID: traceID, ParentID: spanID, Sampled: true},
		"cc-" + traceID + "-" + spanID + "-01-what":                       {TraceID: traceID, ParentID: spanID, Sampled: true},
		"00-" + traceID + "-" + spanID + "-01-what":                       nil,
		"cc-" + traceID + "-" + spanID + "-01what":                        nil,
		"ff-" + traceID + "-" + spanID + "-01":                            nil,
		"00-00000000000000000000000000000000-" + spanID + "-01":           nil,
		"00-" + traceID + "-0000000000000000-01":                          nil,
		"00-4BF92F3577B34DA6A3CE929D0E0E4736-" + spanID + "-01":           nil,
		"00_" + traceID + "-" + spanID + "-01":                            nil,
		"00-" + traceID + "-" + spanID:                                    nil,
		"":                                                                nil,
		"00-" + traceID + "-" + spanID + "-0g":                            nil,
		"0x-" + traceID + "-" + spanID + "-01":                            nil,
		"00-" + traceID[:31] + "é-" + spanID[1:] + "-01":                  nil,
		"00-4bf92f3577b34da6a3ce929d0e0e47-36-00f067aa0ba902b7-010000000": nil,
	} {
		got, ok := envelope.ParseTraceParent(header)
		require.Equal(t, want != nil, ok, header)
		if want != nil {
			require.Equal(t, *want, got, header)
		}
	}
	require.Equal(t, "00-"+traceID+"-"+spanID+"-01", envelope.TraceParent{TraceID: traceID, ParentID: spanID, Sampled: true}.String())
	require.Equal(t, "00-"+traceID+"-"+spanID+"-00", envelope.TraceParent{TraceID: traceID, ParentID: spanID}.String())
}

// What a client says about a trace is passed on as far as the rules allow, and never a reason to
// refuse an event or to lose a message.
func TestTraceOfAClient(t *testing.T) {
	t.Parallel()
	const ids = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"
	c := newCatalog(t)
	for name, test := range map[string]struct{ parent, state, wantParent, wantState string }{
		"as it should be":    {"00-" + ids + "-01", "vendor=a", "00-" + ids + "-01", "vendor=a"},
		"not sampled":        {"00-" + ids + "-00", "", "00-" + ids + "-00", ""},
		"a higher version":   {"cc-" + ids + "-01-what-" + strings.Repeat("x", 5000), "vendor=a", "00-" + ids + "-01", "vendor=a"},
		"flags of tomorrow":  {"00-" + ids + "-fe", "vendor=a", "00-" + ids + "-00", "vendor=a"},
		"state at the bound": {"00-" + ids + "-01", strings.Repeat("x", 512), "00-" + ids + "-01", strings.Repeat("x", 512)},
		"state too long":     {"00-" + ids + "-01", strings.Repeat("x", 513), "00-" + ids + "-01", ""},
		"state far too long": {"00-" + ids + "-01", strings.Repeat("a=b,", 2000), "00-" + ids + "-01", ""},
		"state of bytes":     {"00-" + ids + "-01", "a=\xff", "00-" + ids + "-01", ""},
		"state of signs":     {"00-" + ids + "-01", "a=ü", "00-" + ids + "-01", ""},
		"state with a break": {"00-" + ids + "-01", "a=b\r\nid: 1", "00-" + ids + "-01", ""},
		"no parent":          {strings.Repeat("0", 5000), "vendor=a", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := seal(t, c, placed(), order42, envelope.Context{TraceParent: test.parent, TraceState: test.state})
			assert.Equal(t, test.wantParent, m.Routing.TraceParent)
			assert.Equal(t, test.wantState, m.Routing.TraceState)
			assert.Equal(t, test.wantParent != "", m.Metadata.Headers.TraceParent != nil)
		})
	}
}
