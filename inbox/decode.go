package inbox

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/limits"
)

// foreign is the namespace of keys that are made of a source and an id; any constant would do.
var foreign = uuid.MustParse("5d0a3c0e-8f0b-4d5c-9a3e-6f1b6f0f6a11")

// FieldOrderingKey is the flat field, or attribute, in which the ordering key travels; a contract
// with producers.
const FieldOrderingKey = "ordering_key"

// What a consumer adds to a message that it puts among the dead letters of the broker, as flat fields,
// or attributes. Whoever sends the message again leaves them out.
const (
	FieldDeadLetterReason   = "dead_letter_reason"   // the last error
	FieldDeadLetterConsumer = "dead_letter_consumer" // who abandoned it
	FieldDeadLetterAttempts = "dead_letter_attempts" // how often it had failed
	FieldDeadLetterSource   = "dead_letter_source"   // where it came from, as the broker knows it
	FieldDeadLetterPosition = "dead_letter_position" // its place there
)

// What a dead letter has instead of a payload that is too large for the place of dead letters, beside
// [FieldDeadLetterPosition].
const (
	FieldDeadLetterBytes  = "dead_letter_bytes"  // the size of the payload
	FieldDeadLetterDigest = "dead_letter_digest" // of the payload: "sha256:" and 64 hexadecimal digits
)

// keyVersion is that of UUIDs which are made as their maker likes; version 5 is made by SHA-1,
// which FIPS 140 forbids.
const keyVersion = 8

// uuidLength is that of a UUID as it is usually written: the 32 digits of an MD5, say, are none.
const uuidLength = 36

// KeyOf is the key of an event whose id is unique only together with its source, as CloudEvents
// are: the id itself where it is a UUID with its hyphens, else a UUID of version 8 (RFC 9562) that
// is made of the SHA-256 of both.
func KeyOf(source, id string) uuid.UUID {
	if key, err := uuid.Parse(id); err == nil && key != uuid.Nil && len(id) == uuidLength {
		return key
	}
	return uuid.NewHash(sha256.New(), foreign, []byte(source+"\x00"+id), keyVersion)
}

// Decode reads a delivery: the payload in the internal form, the external form or as a CloudEvent
// in structured JSON; or the data of a CloudEvent in binary mode, whose attributes are prefixed
// with "ce-" as in the Pub/Sub binding, unless the content type is one of structured mode; or the data alone
// in an encoding of its own, such as Protobuf, which the content type names, beside the flat fields id, type and time. The data
// of a CloudEvent may be of any form: it is the handler's to read, if it handles the type at all. The
// ordering key is the attribute [FieldOrderingKey], without it the partitionkey of a CloudEvent, without
// either there is none. Consumer, source, position and deliveries are the transport's to set. The error
// is a *[envelope.DecodeError]; such a message can be read by a [Decoder] alone. The result keeps both
// arguments.
func Decode(payload []byte, attributes map[string]string) (*Message, error) {
	if attributes["ce-specversion"] != "" && attributes["ce-id"] != "" && !namesCloudEvents(contentTypeOf(attributes)) {
		return decodeBinary(payload, attributes)
	}
	if isBare(attributes) {
		return decodeBare(payload, attributes)
	}
	form, decoded, err := envelope.Decode(payload)
	if form == envelope.FormatCloudEvents {
		event, failed := envelope.DecodeCloudEvent(payload)
		if failed != nil {
			return nil, failed
		}
		return fromCloudEvent(event, decoded, payload, attributes), nil
	}
	if err != nil {
		return nil, err
	}
	headers := &decoded.Metadata.Headers
	return &Message{
		Key: headers.ID, ID: headers.ID.String(), Type: headers.Type, Format: form, OrderingKey: attributes[FieldOrderingKey], Envelope: decoded,
		Payload: payload, Attributes: attributes,
	}, nil
}

// isBare reports whether the payload is the data alone, as our relay sends events that have an encoding of their own: the
// content type is not one of JSON, and the flat fields have what is else in the envelope.
func isBare(attributes map[string]string) bool {
	contentType := contentTypeOf(attributes)
	switch {
	case namesJSON(contentType), namesCloudEvents(contentType), attributes["id"] == "", attributes["type"] == "":
		return false
	}
	return attributes[limits.FieldTime] != "" || namesProtobuf(contentType)
}

// decodeBare reads the flat fields. The payload is the handler's to read.
func decodeBare(payload []byte, attributes map[string]string) (*Message, error) {
	flaw := func(cause string, args ...any) error {
		return &envelope.DecodeError{Format: envelope.FormatNative, Cause: fmt.Errorf(cause, args...), Remedy: "check which producer writes to this stream, and its flat fields"}
	}
	id, err := uuid.Parse(attributes["id"])
	if err != nil || id == uuid.Nil || len(attributes["id"]) != uuidLength {
		return nil, flaw("the flat field id is %.100q, not a UUID", attributes["id"])
	}
	decoded := &envelope.Message{Metadata: envelope.Metadata{
		Headers: envelope.Headers{ID: id, Type: attributes["type"]},
		Domain: envelope.Domain{
			SequenceID: attributes[limits.FieldSequenceID], CorrelationID: attributes["correlation_id"], CausationID: attributes[limits.FieldCausationID],
		},
	}}
	headers := &decoded.Metadata.Headers
	for _, name := range []string{"type", "correlation_id", limits.FieldSequenceID, limits.FieldCausationID} {
		if !utf8.ValidString(attributes[name]) { // which a JSON envelope could not have said either
			return nil, flaw("the flat field %s is not valid UTF-8", name)
		}
	}
	if text := attributes[limits.FieldTime]; text != "" {
		at, err := time.Parse(time.RFC3339Nano, text)
		if at = at.UTC(); err != nil || at.Year() < 1 || at.Year() > 9999 {
			return nil, flaw("the flat field time is %.100q, not a time of RFC 3339", text)
		}
		headers.Time = at
	}
	if parent, ok := envelope.ParseTraceParent(attributes["traceparent"]); ok {
		headers.TraceParent = &parent
	}
	return &Message{
		Key: id, ID: id.String(), Type: headers.Type, Format: envelope.FormatNative, OrderingKey: attributes[FieldOrderingKey], Envelope: decoded,
		Payload: payload, Attributes: attributes,
	}, nil
}

// fromCloudEvent makes a message of an event; decoded is nil where the event is not one of ours.
func fromCloudEvent(event *envelope.CloudEvent, decoded *envelope.Message, payload []byte, attributes map[string]string) *Message {
	m := &Message{
		Key: KeyOf(event.Source, event.ID), ID: event.ID, Type: event.Type, Format: envelope.FormatCloudEvents,
		OrderingKey: cmp.Or(attributes[FieldOrderingKey], event.PartitionKey),
		Envelope:    decoded, CloudEvent: event, Payload: payload, Attributes: attributes,
	}
	if decoded != nil {
		event.Data = decoded.Data // one copy in memory
	} else {
		m.Envelope = &envelope.Message{Data: event.Data}
		metadata := &m.Envelope.Metadata
		metadata.Headers = envelope.Headers{ID: m.Key, Time: event.Time, Type: event.Type}
		metadata.Domain = envelope.Domain{CorrelationID: event.CorrelationID, CausationID: event.CausationID, SequenceID: event.Sequence}
		metadata.Extensions = event.Extensions
		if parent, ok := envelope.ParseTraceParent(event.TraceParent); ok {
			metadata.Headers.TraceParent = &parent
		}
	}
	return m
}

// decodeBinary reads an event in binary mode by writing it in structured mode, so that one place
// knows the attributes. Source:
// https://github.com/googleapis/google-cloudevents/blob/main/docs/spec/pubsub.md
func decodeBinary(payload []byte, attributes map[string]string) (*Message, error) {
	structured := map[string]any{}
	for name, value := range attributes {
		if short, ok := strings.CutPrefix(name, "ce-"); ok && short != "data" && short != "data_base64" { // those are the payload
			if !utf8.ValidString(name) || !utf8.ValidString(value) { // JSON would make one id of two
				return nil, &envelope.DecodeError{
					Format: envelope.FormatCloudEvents, Cause: fmt.Errorf("the attribute %.100q is not valid UTF-8", name), Remedy: "have its producer encode it as UTF-8",
				}
			}
			structured[short] = value
		}
	}
	contentType := contentTypeOf(attributes)
	if contentType != "" {
		structured["datacontenttype"] = contentType
	}
	isJSON := envelope.IsData(payload)
	if isJSON {
		structured["data"] = json.RawMessage(payload)
	}
	encoded, err := json.Marshal(structured)
	if err != nil {
		return nil, &envelope.DecodeError{Format: envelope.FormatCloudEvents, Cause: err, Remedy: "check which producer writes to this topic"}
	}
	event, err := envelope.DecodeCloudEvent(encoded)
	if err != nil {
		return nil, err
	}
	if len(payload) > 0 && (!isJSON || !namesJSON(contentType)) {
		event.Binary = payload
	}
	_, decoded, err := envelope.Decode(encoded)
	if err != nil {
		decoded = nil
	}
	return fromCloudEvent(event, decoded, payload, attributes), nil
}

func contentTypeOf(attributes map[string]string) string {
	return cmp.Or(attributes["Content-Type"], attributes["content-type"])
}

// namesCloudEvents reports whether a content type says that the payload is the whole event, in structured
// or batched mode: it decides, as messages in these may have the attributes beside it as well. Source:
// https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md#3-kafka-message-mapping
func namesCloudEvents(contentType string) bool {
	return strings.HasPrefix(strings.ToLower(contentType), "application/cloudevents")
}

// namesJSON reports whether a content type says JSON, as one that is absent does.
func namesJSON(contentType string) bool {
	media, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	media = strings.TrimSpace(media)
	return media == "" || strings.HasSuffix(media, "/json") || strings.HasSuffix(media, "+json")
}

// namesProtobuf reports whether a content type says Protobuf, by one of the names in use.
func namesProtobuf(contentType string) bool {
	media, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	switch strings.TrimSpace(media) {
	case "application/protobuf", "application/x-protobuf", "application/vnd.google.protobuf":
		return true
	}
	return false
}

// Age is how long ago the message's event was raised, by the two clocks involved; 0 where it does
// not say.
func (m *Message) Age(now time.Time) time.Duration {
	if m.Envelope == nil {
		return 0
	}
	if at := m.Envelope.Metadata.Headers.Time; !at.IsZero() {
		return max(now.Sub(at), 0)
	}
	return 0
}
