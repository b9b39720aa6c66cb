package envelope_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
)

func TestDecodeForms(t *testing.T) {
	t.Parallel()
	m := seal(t, newCatalog(t), placed(envelope.TTL(time.Hour)), order42, fullContext())
	internal, err := m.MarshalInternal()
	require.NoError(t, err)
	external, err := marshalWhole(m)
	require.NoError(t, err)

	form, got, err := envelope.Decode(internal)
	require.NoError(t, err)
	require.Equal(t, envelope.FormatInternal, form)
	require.Equal(t, &envelope.Message{Data: m.Data, Metadata: m.Metadata}, got)

	// What the external form does not carry stays empty.
	stripped := m.Metadata
	stripped.Envelope.Checksum, stripped.Domain.Asynchronous, stripped.Domain.Priority = "", false, 0
	form, got, err = envelope.Decode(external)
	require.NoError(t, err)
	require.Equal(t, envelope.FormatNative, form)
	require.Equal(t, &envelope.Message{Data: m.Data, Metadata: stripped}, got)

	x, err := envelope.DecodeExternal(external)
	require.NoError(t, err)
	require.Equal(t, got, x.Message())
	y, err := envelope.DecodeExternal(internal)
	require.NoError(t, err)
	require.Equal(t, x, y, "the internal form is a superset")

	_, err = envelope.DecodeInternal(external)
	require.EqualError(t, err, "envelope: decode internal message: this is the external form: use DecodeExternal, or Decode for any form")
}

// Any one of the three members gives the internal form away.
func TestFormIsRecognised(t *testing.T) {
	t.Parallel()
	for metadata, want := range map[string]envelope.Format{
		``:                                        envelope.FormatNative,
		`,"domain":{"asynchronous":false}`:        envelope.FormatInternal,
		`,"domain":{"priority":0}`:                envelope.FormatInternal,
		`,"envelope":{"checksum":"x"}`:            envelope.FormatInternal,
		`,"envelope":{"checksum":null}`:           envelope.FormatNative,
		`,"event_store":null,"domain":{"fqn":""}`: envelope.FormatNative,
	} {
		form, _, err := envelope.Decode([]byte(nativeWith(metadata)))
		require.NoError(t, err)
		require.Equal(t, want, form, metadata)
	}
}

// nativeWith returns a minimal message with more members in its metadata.
func nativeWith(metadata string) string {
	return `{"data":{},"metadata":{"headers":{"id":"` + fixedID.String() +
		`","time":"2026-03-01T13:30:45.12+01:00","type":"A.B.v1","stream":"a"}` + metadata + `}}`
}

// A message of an event store, with members that we do not know yet.
func TestDecodeForeignMessage(t *testing.T) {
	t.Parallel()
	m, err := envelope.DecodeInternal([]byte(nativeWith(`,"later":1,"domain":{"priority":50,"expected_version":6},"event_store":{"global_position":70,"position":7},"extensions":{"n":12345678901234567890}`)))
	require.NoError(t, err)
	require.Equal(t, "{}", string(m.Data))
	require.Equal(t, fixedTime, m.Metadata.Headers.Time)
	require.Equal(t, &envelope.EventStore{GlobalPosition: 70, Position: 7}, m.Metadata.EventStore)
	require.Equal(t, ptr(int64(6)), m.Metadata.Domain.ExpectedVersion)
	require.Equal(t, json.Number("12345678901234567890"), m.Metadata.Extensions["n"])

	raw, err := m.MarshalInternal()
	require.NoError(t, err)
	require.Contains(t, string(raw), `"event_store":{"global_position":70,"position":7}`)
	require.Contains(t, string(raw), `"extensions":{"n":12345678901234567890}`)
}

func TestDecodeErrors(t *testing.T) {
	t.Parallel()
	const remedy = ": check which producer writes to this stream, and its format"
	valid := nativeWith("")
	for in, want := range map[string]string{
		"":                             "unexpected end of JSON input" + remedy,
		"[]":                           "json: cannot unmarshal array into Go value of type envelope.wireMessage" + remedy,
		valid + "x":                    "invalid character 'x' after top-level value" + remedy,
		"{\"data\":\"\xff\"}":          "it is not valid UTF-8" + remedy,
		`{"metadata":{}}`:              "member data is missing" + remedy,
		`{"data":1}`:                   "member metadata is missing" + remedy,
		`{"data":1,"metadata":[]}`:     "member metadata: json: cannot unmarshal array into Go value of type envelope.wireMetadata" + remedy,
		`{"data":1,"metadata":null}`:   "member metadata.headers.id is missing" + remedy,
		nativeWith(`,"extensions":[]`): "member metadata: json: cannot unmarshal array into Go struct field wireMetadata.extensions of type map[string]interface {}" + remedy,
		nativeWith(`,"envelope":{"specversion":"2.0"}`):                                        `metadata.envelope.specversion is "2.0", known is "1.0": update this consumer`,
		strings.Replace(valid, "A.B.v1", "", 1):                                                "member metadata.headers.type is missing" + remedy,
		strings.Replace(valid, `"stream":"a"`, `"stream":null`, 1):                             "member metadata.headers.stream is missing" + remedy,
		strings.Replace(valid, `"2026-03-01T13:30:45.12+01:00"`, "null", 1):                    "member metadata.headers.time is missing" + remedy,
		strings.Replace(valid, `2026-03-01T13:30:45.12+01:00`, "9999-12-31T23:00:00-01:00", 1): "a time of metadata.headers is outside the years 1 to 9999 in UTC" + remedy,
	} {
		_, _, err := envelope.Decode([]byte(in))
		require.EqualError(t, err, "envelope: decode message: "+want, in)
		_, err = envelope.DecodeInternal([]byte(in))
		require.EqualError(t, err, "envelope: decode internal message: "+want, in)
		_, err = envelope.DecodeExternal([]byte(in))
		require.EqualError(t, err, "envelope: decode native message: "+want, in)
	}
}

type explosive struct{}

func (*explosive) UnmarshalJSON([]byte) error { panic("boom") }

func TestDataAs(t *testing.T) {
	t.Parallel()
	got, err := envelope.DataAs[StockReserved](json.RawMessage(`{"sku":"a","quantity":3,"later":true}`))
	require.NoError(t, err)
	require.Equal(t, StockReserved{SKU: "a", Quantity: 3}, got)

	const remedy = ": compare the type with the producer's, and its version with that in headers.type"
	_, err = envelope.DataAs[StockReserved](json.RawMessage(`{"sku":1}`))
	require.EqualError(t, err, "envelope: decode message: its data as envelope_test.StockReserved: json: cannot unmarshal number into Go struct field StockReserved.sku of type string"+remedy)
	_, err = envelope.DataAs[StockReserved](nil)
	require.EqualError(t, err, "envelope: decode message: its data as envelope_test.StockReserved: there is no data"+remedy)
	_, err = envelope.DataAs[explosive](json.RawMessage(`{}`))
	require.EqualError(t, err, "envelope: decode message: its data as envelope_test.explosive: panic: boom"+remedy)
}

// What two readers could understand in two ways is refused, in any form: encoding/json would take
// the last member of a name, in any case.
func TestDecodeRefusesAmbiguity(t *testing.T) {
	t.Parallel()
	native := nativeWith("")
	event := `{"specversion":"1.0","id":"` + fixedID.String() + `","source":"/a","type":"t","data":{}}`
	for text, want := range map[string]string{
		nativeWith(`,"HEADERS":{"TYPE":"Other.v1"}`):                            `member "HEADERS" is not "headers": names are case-sensitive`,
		nativeWith(`,"headers":{"type":"Other.v1"}`):                            `member "metadata.headers" occurs twice: leave one out`,
		strings.Replace(native, `"type":`, `"TYPE":"Other.v1","type":`, 1):      `member "headers.TYPE" is not "type"`,
		strings.Replace(native, `"data":{}`, `"data":null`, 1):                  `member data is null`,
		strings.Replace(native, `"data":{}`, `"data":{},"data":{}`, 1):          `member "data" occurs twice`,
		strings.Replace(native, `"data":{}`, `"data":{},"DATA":{}`, 1):          `member "DATA" is not "data"`,
		strings.Replace(native, `"data":{}`, `"data":{"a":[{"b":1,"b":2}]}`, 1): `member "data.a.b" occurs twice`,
		strings.Replace(native, `{"data"`, `{"SpecVersion":"1.0","data"`, 1):    `member "SpecVersion" is not "specversion"`,
		strings.Replace(event, `"id":`, `"id":"1","id":`, 1):                    `member "id" occurs twice`,
		strings.Replace(event, `"id":`, `"ID":"1","id":`, 1):                    `attribute "ID" is not "id": names are case-sensitive`,
		strings.Replace(event, `"data":{}`, `"data":null`, 1):                   `member data is missing`,
	} {
		_, _, err := envelope.Decode([]byte(text))
		var flaw *envelope.DecodeError
		require.ErrorAs(t, err, &flaw, text)
		require.ErrorContains(t, err, want)
	}
}
