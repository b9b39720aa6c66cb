package envelope_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
)

// anything is an event whose JSON the fuzzer writes.
type anything struct{ Text, Raw json.RawMessage }

// FuzzRoundTrip seals whatever the fuzzer thinks of, and wants it back unchanged
// from every form.
func FuzzRoundTrip(f *testing.F) {
	id := fixedID
	f.Add(id[:], fixedTime.UnixMicro(), "ada", []byte(`{"priority":1,"checksum":"x","n":1.50}`), "Order", "42", int64(7), 1,
		"corr", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "region", "eu", int64(time.Hour))
	f.Add(id[:], int64(1), "<\u2028\"\\\x00\xff>", []byte(`[1e20,"\ud83d\ude00",0.1]`), "", "", int64(-1), -1, "", "", "", "\n", int64(0))
	f.Add(id[:], int64(-62135596800000000), "", []byte(`"\ud800"`), "HTTPRequest", "a,b-c", int64(1)<<62, 0,
		"\u00e9", "x", "a b", "", int64(1))

	f.Fuzz(func(t *testing.T, id []byte, micros int64, text string, raw []byte, aggregate, aggregateID string,
		version int64, sequence int, correlation, traceParent, extension, value string, ttl int64,
	) {
		c := envelope.NewCatalog("ordering")
		envelope.Register[anything](c, envelope.Published(), envelope.Name("Anything"))
		quoted, err := json.Marshal(text)
		require.NoError(t, err)
		ev := envelope.Event{Time: time.UnixMicro(micros), Data: anything{Text: quoted, Raw: raw}}
		copy(ev.ID[:], id)
		if ttl > 0 {
			ev.Options = append(ev.Options, envelope.TTL(time.Duration(ttl)))
		}
		source := envelope.Source{Aggregate: aggregate, ID: aggregateID, Version: version, Sequence: sequence, ExpectedVersion: &version}
		cx := envelope.Context{
			CorrelationID: correlation, OriginStream: correlation, IdempotencyKey: correlation, TenantID: correlation,
			TraceParent: traceParent, Extensions: map[string]any{extension: value, "raw": json.RawMessage(quoted)},
		}
		m, err := c.Seal(ev, source, cx)
		if err != nil {
			var encode *envelope.EncodeError
			var option *envelope.OptionError
			require.True(t, errors.As(err, &encode) || errors.As(err, &option), "untyped: %v", err)
			return
		}
		require.NoError(t, m.VerifyChecksum())
		checkInternal(t, m)
		checkExternal(t, m)
		checkCloudEvent(t, m)
	})
}

func checkInternal(t *testing.T, m *envelope.Message) {
	t.Helper()
	raw, err := m.MarshalInternal()
	require.NoError(t, err)
	back, err := envelope.DecodeInternal(raw)
	require.NoError(t, err, "%s", raw)
	require.Equal(t, m.Data, back.Data)
	require.Equal(t, m.Metadata, back.Metadata)
	require.NoError(t, back.VerifyChecksum())
	again, err := back.MarshalInternal()
	require.NoError(t, err)
	require.Equal(t, string(raw), string(again))
}

func checkExternal(t *testing.T, m *envelope.Message) {
	t.Helper()
	raw, err := marshalWhole(m)
	require.NoError(t, err)
	checkLeaves(t, raw)
	x, err := envelope.DecodeExternal(raw)
	require.NoError(t, err, "%s", raw)
	require.Equal(t, m.Data, x.Data)

	want := m.Metadata
	want.Envelope.Checksum, want.Domain.Asynchronous, want.Domain.Priority = "", false, 0
	want.Domain.ExpectedVersion, want.EventStore = nil, nil
	require.Equal(t, want, x.Message().Metadata)

	meta, err := json.Marshal(x.Metadata)
	require.NoError(t, err)
	var wire struct {
		Metadata json.RawMessage `json:"metadata"`
	}
	require.NoError(t, json.Unmarshal(raw, &wire))
	require.JSONEq(t, string(wire.Metadata), string(meta))
}

// checkLeaves allows the members that the wire format lists, and not one more; those without a value are absent.
// Data and the values of extensions are the user's.
func checkLeaves(t *testing.T, raw []byte) {
	t.Helper()
	var wire struct {
		Metadata map[string]json.RawMessage `json:"metadata"`
	}
	require.NoError(t, json.Unmarshal(raw, &wire))
	require.ElementsMatch(t, []string{"data", "metadata"}, names(t, raw))
	allowed := []string{"headers", "domain", "envelope"}
	if _, ok := wire.Metadata["extensions"]; ok {
		allowed = append(allowed, "extensions")
		require.NotEqual(t, "{}", string(wire.Metadata["extensions"]), "absent when empty")
	}
	for name := range wire.Metadata {
		require.Contains(t, allowed, name)
	}
	headerNames, domainNames := names(t, wire.Metadata["headers"]), names(t, wire.Metadata["domain"])
	require.Subset(t, []string{"id", "time", "type", "stream", "traceparent", "idempotency_key", "deadline"}, headerNames)
	require.Subset(t, headerNames, []string{"id", "time", "type", "stream"})
	require.Subset(t, []string{
		"fqn", "kind", "origin_stream", "stream_category", "version", "sequence_id", "correlation_id", "causation_id",
	}, domainNames)
	require.Subset(t, domainNames, []string{"kind", "stream_category", "version"})
	require.NotContains(t, string(wire.Metadata["headers"])+string(wire.Metadata["domain"]), ":null")
	require.ElementsMatch(t, []string{"specversion"}, names(t, wire.Metadata["envelope"]))
	var headers map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(wire.Metadata["headers"], &headers))
	if headers["traceparent"] != nil {
		require.ElementsMatch(t, []string{"trace_id", "parent_id", "sampled"}, names(t, headers["traceparent"]))
	}
}

func names(t *testing.T, object json.RawMessage) []string {
	t.Helper()
	var members map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(object, &members))
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	return names
}

func checkCloudEvent(t *testing.T, m *envelope.Message) {
	t.Helper()
	raw, err := m.MarshalCloudEvent(envelope.CloudEventOptions{Extensions: every(m)})
	if err != nil {
		var encode *envelope.EncodeError
		require.ErrorAs(t, err, &encode)
		return
	}
	checkAttributes(t, m, raw)
	form, back, err := envelope.Decode(raw)
	require.NoError(t, err, "%s", raw)
	require.Equal(t, envelope.FormatCloudEvents, form)
	require.Equal(t, m.Data, back.Data)
	require.Equal(t, m.Metadata.Headers.ID, back.Metadata.Headers.ID)
	require.Equal(t, m.Metadata.Headers.Time, back.Metadata.Headers.Time)
	require.Equal(t, m.Metadata.Headers.TraceParent, back.Metadata.Headers.TraceParent)
	require.Equal(t, m.Metadata.Domain.CorrelationID, back.Metadata.Domain.CorrelationID)
	require.Equal(t, m.Metadata.Extensions, back.Metadata.Extensions)
}

// checkAttributes wants no attribute but those that the wire format lists and the user's own.
func checkAttributes(t *testing.T, m *envelope.Message, raw []byte) {
	t.Helper()
	allowed := []string{
		"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "traceparent", "tracestate", "partitionkey", "sequence",
		"correlationid", "causationid", "data",
	}
	for name := range m.Metadata.Extensions {
		allowed = append(allowed, strings.ReplaceAll(name, envelope.ExtensionTenantID, "tenantid"))
	}
	for _, name := range names(t, raw) {
		require.Contains(t, allowed, name)
	}
}

// FuzzDecode feeds bytes of anybody's: no panic, typed errors, and what was
// decoded encodes again to the same message.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(nativeWith(`,"event_store":{"global_position":1,"position":2},"extensions":{"a":[1]}`)))
	f.Add([]byte(nativeWith(`,"domain":{"priority":1,"expected_version":2},"envelope":{"checksum":"x"}`)))
	f.Add([]byte(ceWith(`"id":"` + uuid.Max.String() + `","data":{"a":1},"extra":{"b":2}`)))
	f.Add([]byte(`{"data":1,"metadata":{"headers":{"traceparent":{}}}}`))
	for _, foreign := range []string{
		"", "null", "[]", "42", "text", "\x00\x00\x00\x00\x2a\xff", "\xff\xfe", `{"data":`, `{"op":"c","source":{},"after":{}}`,
		ceWith(`"data_base64":"CJYB"`), ceWith(`"data_base64":"eyJhIjoxfQ=="`), ceWith(`"specversion":"2.0"`),
	} {
		f.Add([]byte(foreign))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		form, m, err := envelope.Decode(b)
		_, _ = envelope.DecodeInternal(b)
		_, _ = envelope.DecodeExternal(b)
		_, _ = envelope.DecodeCloudEvent(b)
		_, _ = envelope.DataAs[OrderPlaced](b)
		if err != nil {
			var decode *envelope.DecodeError
			require.ErrorAs(t, err, &decode)
			return
		}
		_ = m.VerifyChecksum()
		raw, err := m.MarshalInternal()
		require.NoError(t, err)
		require.True(t, json.Valid(raw), "%s", raw)
		if form == envelope.FormatCloudEvents {
			return // without a stream, which the native forms require
		}
		// Times beyond microseconds are cut, so compare what was written twice.
		_, back, err := envelope.Decode(raw)
		require.NoError(t, err)
		again, err := back.MarshalInternal()
		require.NoError(t, err)
		require.Equal(t, string(raw), string(again))
	})
}

// FuzzSnakeCase: streams must stay parseable whatever an aggregate is called.
func FuzzSnakeCase(f *testing.F) {
	for _, seed := range []string{"OrderLine", "HTTPRequest", "OAuth2Token", "Basket[a/b.Item·1]", "İx", "ǅ", "dUϔ", "\xff", "a__b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := envelope.SnakeCase(s)
		require.NotContains(t, got, "-")
		require.NotContains(t, got, ":")
		require.NotContains(t, got, "__")
		require.Equal(t, got, envelope.SnakeCase(got))
	})
}
