package inbox

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/gorm-fanout/fanout/envelope"
)

type placed struct{ OrderID string }

// sealed is an event as the outbox would write it.
func sealed(t testing.TB, cx envelope.Context) *envelope.Message {
	t.Helper()
	events := envelope.NewCatalog("ordering")
	envelope.Register[placed](events, envelope.Published(), envelope.Name("OrderPlaced"))
	m, err := events.Seal(envelope.NewEvent(placed{"42"}), envelope.Source{Aggregate: "Order", ID: "42"}, cx)
	require.NoError(t, err)
	return m
}

func TestDecodeForms(t *testing.T) {
	t.Parallel()
	original := sealed(t, envelope.Context{CorrelationID: "checkout-42", TenantID: "acme"})
	internal, err := original.MarshalInternal()
	require.NoError(t, err)
	external, err := original.MarshalExternal(envelope.Include{}, envelope.ExtensionTenantID)
	require.NoError(t, err)
	event, err := original.MarshalCloudEvent(envelope.CloudEventOptions{Extensions: []string{envelope.ExtensionTenantID}})
	require.NoError(t, err)
	id := original.Metadata.Headers.ID
	for form, payload := range map[envelope.Format][]byte{envelope.FormatInternal: internal, envelope.FormatNative: external, envelope.FormatCloudEvents: event} {
		attributes := map[string]string{"id": id.String(), "ordering_key": "customer-7"}
		m, err := Decode(payload, attributes)
		require.NoError(t, err, form)
		assert.Equal(t, form, m.Format)
		assert.Equal(t, id, m.Key)
		assert.Equal(t, id.String(), m.ID)
		assert.Equal(t, "Ordering.OrderPlaced.v1", m.Type)
		assert.Equal(t, "customer-7", m.OrderingKey, "the one on the wire, not the stream")
		without, err := Decode(payload, nil)
		require.NoError(t, err)
		assert.Equal(t, map[bool]string{true: "ordering::order-42"}[form == envelope.FormatCloudEvents], without.OrderingKey, form)
		assert.Equal(t, "checkout-42", m.Envelope.Metadata.Domain.CorrelationID)
		assert.JSONEq(t, `{"OrderID":"42"}`, string(m.Envelope.Data))
		assert.Equal(t, payload, m.Payload)
		assert.Equal(t, attributes, m.Attributes)
		assert.Equal(t, form == envelope.FormatCloudEvents, m.CloudEvent != nil)
		cx := envelope.FromContext(m.Context(t.Context()))
		assert.Equal(t, id.String(), cx.CausationID, form)
		assert.Equal(t, "checkout-42", cx.CorrelationID, form)
		assert.Equal(t, "acme", cx.TenantID, form)
	}
}

// Events of other producers are distinguished by source and id together.
func TestDecodeForeignEvents(t *testing.T) {
	t.Parallel()
	read := func(text string) *Message {
		m, err := Decode([]byte(text), nil)
		require.NoError(t, err)
		return m
	}
	a := read(`{"specversion":"1.0","id":"7","source":"/a","type":"com.example.paid","partitionkey":"k","correlationid":"c","time":"2026-11-22T01:02:03Z","data":{"x":1}}`)
	b := read(`{"specversion":"1.0","id":"7","source":"/b","type":"com.example.paid","data":{"x":1}}`)
	again := read(`{"specversion":"1.0","id":"7","source":"/a","type":"com.example.paid","data":{"x":2}}`)
	assert.NotEqual(t, a.Key, b.Key)
	assert.Equal(t, a.Key, again.Key)
	assert.Equal(t, uuid.Version(8), a.Key.Version())
	assert.Equal(t, "7", a.ID)
	assert.Equal(t, "k", a.OrderingKey)
	assert.Equal(t, a.Key.String(), envelope.FromContext(a.Context(t.Context())).CausationID)
	assert.Equal(t, "c", envelope.FromContext(a.Context(t.Context())).CorrelationID)
	assert.Equal(t, time.Minute, a.Age(time.Date(2026, 11, 22, 1, 3, 3, 0, time.UTC)))
	assert.Zero(t, a.Age(time.Time{}), "a clock that is behind")
	assert.Zero(t, b.Age(time.Now()), "no time")
	const hash = "9e107d9d372bb6826bd81d3542a419d6" // of what two producers have in common
	assert.NotEqual(t, KeyOf("/a", hash), KeyOf("/b", hash))
	own := uuid.NewString()
	assert.Equal(t, own, read(`{"specversion":"1.0","id":"`+own+`","source":"/a","type":"t"}`).Key.String(), "without data, which is allowed")

	binary, err := Decode([]byte(`{"x":1}`), map[string]string{"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/a", "ce-type": "com.example.paid", "content-type": "application/json"})
	require.NoError(t, err)
	assert.Equal(t, a.Key, binary.Key)
	assert.Equal(t, envelope.FormatCloudEvents, binary.Format)
	assert.JSONEq(t, `{"x":1}`, string(binary.Envelope.Data))
	assert.Equal(t, "application/json", binary.CloudEvent.DataContentType)
}

// Attributes in Latin-1 are no text: of two ids JSON would make one, and a copy of the second event.
func TestBinaryModeIsUTF8(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"ce-id", "ce-source", "ce-type", "ce-own"} {
		attributes := map[string]string{"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/s", "ce-type": "T.v1"}
		attributes[bad] = "M\xfcller"
		_, err := Decode([]byte(`{"n":1}`), attributes)
		var unread *envelope.DecodeError
		require.ErrorAs(t, err, &unread)
		assert.ErrorContains(t, err, bad)
	}
}

// The data of a CloudEvent is the handler's to read, in binary mode, too: it is JSON where it can
// be, and bytes where its content type, or what it is, says so.
func TestDecodeBinaryData(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ payload, contentType, data, binary string }{
		{`{"x":1}`, "", `{"x":1}`, ""},
		{`{"x":1}`, "application/json; charset=utf-8", `{"x":1}`, ""},
		{`{"x":1}`, "application/vnd.shop+json", `{"x":1}`, ""},
		{`{"x":1}`, "application/protobuf", `{"x":1}`, `{"x":1}`},
		{"\x08\x96\x01", "application/protobuf", "", "\x08\x96\x01"},
		{"\x08\x96\x01", "application/json", "", "\x08\x96\x01"},
		{`{"x":1,"x":2}`, "application/json", "", `{"x":1,"x":2}`},
		{"null", "application/json", "", "null"},
		{"", "application/json", "", ""},
	} {
		m, err := Decode([]byte(c.payload), map[string]string{
			"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/a", "ce-type": "t", "content-type": c.contentType, "ce-data": "x", "ce-data_base64": "x",
		})
		require.NoError(t, err, c.payload)
		assert.Equal(t, []string{c.data, c.data, c.binary, c.contentType},
			[]string{string(m.Envelope.Data), string(m.CloudEvent.Data), string(m.CloudEvent.Binary), m.CloudEvent.DataContentType}, c.payload)
		assert.Equal(t, []string{"t", c.payload}, []string{m.Type, string(m.Payload)})
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	for payload, attributes := range map[string]map[string]string{
		"":           nil,
		"not JSON":   nil,
		"{}":         nil,
		`{"data":1}`: nil,
		`{"specversion":"1.0","id":"7","type":"t"}`:              nil,
		`{"specversion":"0.3","id":"7","source":"/","type":"t"}`: nil,
		"\xff":    {"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/a"},
		`{"x":1}`: {"ce-specversion": "1.0", "ce-id": "7"},
	} {
		_, err := Decode([]byte(payload), attributes)
		var flaw *envelope.DecodeError
		assert.ErrorAs(t, err, &flaw, payload)
	}
}

// The span of whoever raised the event is the remote parent of what it causes, unless the consumer
// has one of its own.
func TestSpans(t *testing.T) {
	t.Parallel()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	original := sealed(t, envelope.Context{TraceParent: parent})
	payload, err := original.MarshalInternal()
	require.NoError(t, err)
	for _, attributes := range []map[string]string{nil, {"traceparent": "nonsense"}, {"traceparent": parent, "tracestate": "a=b"}} {
		m, err := Decode(payload, attributes)
		require.NoError(t, err)
		span := m.SpanContext()
		assert.Equal(t, "0af7651916cd43dd8448eb211c80319c", span.TraceID().String())
		assert.Equal(t, "b7ad6b7169203331", span.SpanID().String())
		assert.True(t, span.IsRemote() && span.IsSampled())
		assert.Equal(t, attributes["tracestate"], span.TraceState().String())
		assert.Equal(t, parent, envelope.FromContext(m.Context(t.Context())).TraceParent)
		own := trace.NewSpanContext(trace.SpanContextConfig{TraceID: span.TraceID(), SpanID: trace.SpanID{1}})
		assert.Equal(t, own, trace.SpanContextFromContext(m.Context(trace.ContextWithSpanContext(t.Context(), own))))
	}
	plain, err := sealed(t, envelope.Context{}).MarshalInternal()
	require.NoError(t, err)
	m, err := Decode(plain, nil)
	require.NoError(t, err)
	assert.False(t, m.SpanContext().IsValid())
	assert.Empty(t, envelope.FromContext(m.Context(t.Context())).TraceParent)
}

// Whatever arrives, Decode either refuses it or gives a message that everything else can work with.
func FuzzDecode(f *testing.F) {
	payload, err := sealed(f, envelope.Context{TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}).MarshalInternal()
	require.NoError(f, err)
	f.Add(payload, "", "")
	f.Add([]byte(`{"specversion":"1.0","id":"7","source":"/a","type":"t","data":null}`), "", "traceparent")
	f.Add([]byte(`{"x":1}`), "7", "/a")
	for _, foreign := range []string{
		"", "null", "[]", "42", "text", "\x00\x00\x00\x00\x2a\xff", "\xff", `{"data":`, `{"op":"c","source":{},"after":{}}`, "\x08\x96\x01",
		`{"specversion":"1.0","id":"7","source":"/a","type":"t","data_base64":"CJYB"}`, `{"specversion":"2.0","id":"7"}`,
	} {
		f.Add([]byte(foreign), "", "")
		f.Add([]byte(foreign), "7", "/a")
	}
	f.Fuzz(func(t *testing.T, payload []byte, id, other string) {
		attributes := map[string]string{"traceparent": other, "tracestate": id}
		if id != "" {
			attributes["ce-specversion"], attributes["ce-id"], attributes["ce-source"], attributes["ce-type"] = "1.0", id, other, "t"
		}
		m, err := Decode(payload, attributes)
		if err != nil {
			var flaw *envelope.DecodeError
			require.ErrorAs(t, err, &flaw)
			return
		}
		require.NotEqual(t, uuid.Nil, m.Key)
		require.NotEmpty(t, m.Type)
		require.NotNil(t, m.Envelope)
		require.Equal(t, m.Key.String(), envelope.FromContext(m.Context(t.Context())).CausationID)
		if m.Envelope.Data != nil {
			require.True(t, json.Valid(m.Envelope.Data))
		}
		_ = m.SpanContext()
		require.GreaterOrEqual(t, m.Age(time.Now()), time.Duration(0))
	})
}

// The data of an event is in memory twice at most: as it came, and as it was read.
func TestCopiesOfData(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"0197e5a4-0000-7000-8000-000000000001", "foreign"} {
		m, err := Decode([]byte(`{"specversion":"1.0","id":"`+id+`","source":"/s","type":"T.v1","data":{"a":1}}`), nil)
		require.NoError(t, err)
		assert.JSONEq(t, `{"a":1}`, string(m.CloudEvent.Data))
		assert.Same(t, &m.Envelope.Data[0], &m.CloudEvent.Data[0], id)
	}
}
