package consumertest

import (
	"strings"

	"github.com/google/uuid"
)

// A shape is a message that no Fanout has written, or that is damaged, and what becomes of it.
type shape struct {
	name       string
	payload    []byte
	attributes map[string]string
	// fate is what becomes of it unless the consumer skips what it cannot read.
	fate fate
}

type fate int

const (
	unreadable fate = iota // it is a dead letter, or skipped where the consumer is to skip such messages
	otherType              // its type is not handled: it is skipped in any case
	failing                // it can be read, and its handler fails: it is a dead letter in any case
	good                   // it is handled
)

// handledType is that of the messages that the suite's handlers handle.
const handledType = "Ordering.OrderPlaced.v1"

// protobuf is a message of Protocol Buffers: field 1 = 150, field 2 = "testing", field 3 = some bytes.
const protobuf = "\x08\x96\x01\x12\x07testing\x1a\x02\xff\xfe"

// bare is what stands before the JSON of a message of the suite that is the data alone, without an envelope: some bytes that no
// text has.
const bare = "\x00\xff\xfe"

// flat are the fields beside such a message, as our relay sends it.
func flat(id, kind string) map[string]string {
	return map[string]string{
		"id": id, "type": kind, "content-type": "application/protobuf; proto=shop.v1.OrderPlaced", "time": "2026-11-22T01:02:03Z", "sequence_id": "7.1", "causation_id": "cause",
	}
}

// binaryMode are the attributes of a CloudEvent in binary mode.
func binaryMode(id, kind, contentType string) map[string]string {
	return map[string]string{"ce-specversion": "1.0", "ce-id": id, "ce-source": "/elsewhere", "ce-type": kind, "content-type": contentType}
}

// shapes are what may be found in a topic to which other programs write as well.
func shapes() []shape {
	const (
		change = `{"before":null,"after":{"id":7,"total":"9.90"},"source":{"connector":"postgresql","lsn":24023128,"table":"orders"},"op":"c","ts_ms":1761900000000}`
		placed = `{"data":{"key":"x","n":0},"metadata":{"headers":{"id":"0197e5a4-0000-7000-8000-000000000001","type":"` + handledType +
			`","stream":"ordering::order-1","time":"2026-11-22T01:02:03Z"},"envelope":{"specversion":"1.0"}}}`
	)
	id := func(name string) string { return uuid.NewSHA1(uuid.Nil, []byte(name)).String() }
	brokenTime := flat(id("BareWithBrokenTime"), handledType)
	brokenTime["time"] = "noon"
	return []shape{
		{name: "Tombstone"},
		{name: "Empty", payload: []byte{}, attributes: map[string]string{"content-type": "application/json"}},
		{name: "PlainJSON", payload: []byte(`{"order":7,"total":"9.90"}`), attributes: map[string]string{"content-type": "application/json"}},
		{name: "PlainJSONOfOtherType", payload: []byte(`{"order":7}`), attributes: map[string]string{"type": "Shop.Order"}, fate: otherType},
		{name: "JSONArray", payload: []byte(`[` + placed + `]`)},
		{name: "TruncatedJSON", payload: []byte(placed[:len(placed)/2]), attributes: map[string]string{"type": handledType}},
		{name: "Debezium", payload: []byte(change)},
		{name: "ConfluentAvro", payload: []byte("\x00\x00\x00\x00\x2a\x0eorder-7\x02\xff")},
		{name: "Protobuf", payload: []byte(protobuf)},
		{name: "InvalidUTF8", payload: []byte("{\"data\":{},\"metadata\":{\"headers\":{\"type\":\"\xff\xfe\"}}}")},
		{name: "Huge", payload: []byte(`{"order":"` + strings.Repeat("x", 500<<10) + `"}`)},
		{name: "DeepJSON", payload: []byte(strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000))},
		{name: "EnvelopeOfLaterVersion", payload: []byte(strings.Replace(placed, `"1.0"`, `"2.0"`, 1)), attributes: map[string]string{"type": handledType}},
		{name: "EnvelopeWithoutID", payload: []byte(strings.Replace(placed, `"id":"0197e5a4-0000-7000-8000-000000000001",`, "", 1))},
		{name: "EnvelopeTwice", payload: []byte(strings.Replace(placed, `{"data"`, `{"data":1,"data"`, 1))},
		{name: "CloudEventOfOtherType", payload: []byte(`{"specversion":"1.0","id":"7","source":"/elsewhere","type":"com.example.paid","data":{"x":1}}`), fate: otherType},
		{name: "CloudEventWithBinaryData", payload: []byte(`{"specversion":"1.0","id":"` + id("CloudEventWithBinaryData") + `","source":"/elsewhere","type":"` + handledType + `","data_base64":"CJYB"}`), fate: failing},
		{name: "CloudEventBatch", payload: []byte(`[{"specversion":"1.0","id":"7","source":"/elsewhere","type":"com.example.paid"}]`), attributes: map[string]string{"content-type": "application/cloudevents-batch+json"}},
		{name: "BinaryModeOfOtherType", payload: []byte(`{"x":1}`), attributes: binaryMode(id("BinaryModeOfOtherType"), "com.example.paid", "application/json"), fate: otherType},
		{name: "BinaryModeWithProtobuf", payload: []byte(protobuf), attributes: binaryMode(id("BinaryModeWithProtobuf"), handledType, "application/protobuf"), fate: failing},
		{name: "BinaryModeWhoseContentTypeLies", payload: []byte(protobuf), attributes: binaryMode(id("BinaryModeWhoseContentTypeLies"), "com.example.paid", "application/json"), fate: otherType},
		{name: "StructuredModeWithHeadersOfBinaryMode", payload: []byte(`{"specversion":"1.0","id":"` + id("StructuredModeWithHeadersOfBinaryMode") + `","source":"/elsewhere","type":"` + handledType +
			`","data":{"key":"StructuredModeWithHeadersOfBinaryMode","n":9}}`), attributes: binaryMode(id("StructuredModeWithHeadersOfBinaryMode"), handledType, "Application/CloudEvents+JSON; charset=UTF-8"), fate: good},
		{name: "BinaryModeWithoutID", payload: []byte(`{"x":1}`), attributes: map[string]string{"ce-specversion": "1.0", "ce-source": "/elsewhere", "ce-type": handledType}},
		{name: "Bare", payload: []byte(bare + `{"key":"Bare","n":9}`), attributes: flat(id("Bare"), handledType), fate: good},
		{name: "BareThatDoesNotFit", payload: []byte(protobuf), attributes: flat(id("BareThatDoesNotFit"), handledType), fate: failing},
		{name: "BareAndEmpty", payload: []byte{}, attributes: flat(id("BareAndEmpty"), handledType), fate: failing},
		{name: "BareOfOtherType", payload: []byte(protobuf), attributes: flat(id("BareOfOtherType"), "Other.Thing.v1"), fate: otherType},
		{name: "BareWithoutUUID", payload: []byte(protobuf), attributes: flat("7", handledType)},
		{name: "BareWithBrokenTime", payload: []byte(protobuf), attributes: brokenTime},
		{name: "JSONWhoseContentTypeLies", payload: []byte(`{"specversion":"1.0","id":"` + id("JSONWhoseContentTypeLies") + `","source":"/elsewhere","type":"` + handledType +
			`","data":{"key":"JSONWhoseContentTypeLies","n":9}}`), attributes: map[string]string{"content-type": "application/protobuf"}, fate: good},
	}
}
