package envelope

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/internal/strictjson"
)

// DecodeCloudEvent reads a CloudEvent in structured JSON, ours or another producer's. Data that is not
// JSON (data_base64) is in [CloudEvent].Binary. The error is a *[DecodeError].
func DecodeCloudEvent(b []byte) (*CloudEvent, error) {
	if _, err := decodeOuter(FormatCloudEvents, b); err != nil {
		return nil, err
	}
	var attributes map[string]json.RawMessage
	if err := strictjson.Unmarshal(b, &attributes); err != nil {
		return nil, &DecodeError{FormatCloudEvents, err, formatRemedy}
	}

	var ce CloudEvent
	var version, at string
	for _, known := range []struct {
		name     string
		required bool
		into     *string
	}{
		{"specversion", true, &version},
		{"id", true, &ce.ID},
		{"source", true, &ce.Source},
		{"type", true, &ce.Type},
		{"subject", false, &ce.Subject},
		{"time", false, &at},
		{"datacontenttype", false, &ce.DataContentType},
		{"traceparent", false, &ce.TraceParent},
		{"tracestate", false, &ce.TraceState},
		{"partitionkey", false, &ce.PartitionKey},
		{"sequence", false, &ce.Sequence},
		{"correlationid", false, &ce.CorrelationID},
		{"causationid", false, &ce.CausationID},
	} {
		if raw, ok := attributes[known.name]; ok {
			if err := json.Unmarshal(raw, known.into); err != nil {
				return nil, decodeFlaw(FormatCloudEvents, formatRemedy, "attribute %s: %w", known.name, err)
			}
			delete(attributes, known.name)
		}
		if name, found := inOtherCase(attributes, known.name); found {
			return nil, decodeFlaw(FormatCloudEvents, formatRemedy, "attribute %q is not %q: names are case-sensitive", name, known.name)
		}
		if known.required && *known.into == "" {
			return nil, decodeFlaw(FormatCloudEvents, formatRemedy, "attribute %s is missing", known.name)
		}
	}
	if version != specVersion {
		return nil, decodeFlaw(FormatCloudEvents, "update this consumer", "specversion is %q, known is %q", version, specVersion)
	}
	if at != "" {
		t, err := time.Parse(time.RFC3339Nano, at)
		if err != nil || !yearHasFourDigits(t) {
			return nil, decodeFlaw(FormatCloudEvents, formatRemedy, "attribute time is %q, not a time of RFC 3339", at)
		}
		ce.Time = t.UTC()
	}
	if err := ce.decodeData(attributes); err != nil {
		return nil, err
	}
	delete(attributes, "data")
	delete(attributes, memberBase64)
	return &ce, ce.decodeExtensions(attributes)
}

// memberBase64 has data that is not JSON.
const memberBase64 = "data_base64"

// decodeData reads the data in either of its forms. Null is as good as absent.
func (ce *CloudEvent) decodeData(members map[string]json.RawMessage) error {
	data, encoded := members["data"], members[memberBase64]
	if len(data) > 0 && !isNull(data) {
		ce.Data = data
	}
	if len(encoded) == 0 || isNull(encoded) {
		return nil
	}
	if ce.Data != nil {
		return decodeFlaw(FormatCloudEvents, formatRemedy, "it has both data and data_base64")
	}
	var text string
	err := json.Unmarshal(encoded, &text)
	if err == nil {
		ce.Binary, err = base64.StdEncoding.DecodeString(text)
	}
	if err != nil {
		return decodeFlaw(FormatCloudEvents, formatRemedy, "member data_base64: %w", err)
	}
	if ce.Data = ce.Binary; !IsData(ce.Data) {
		ce.Data = nil
	}
	return nil
}

// IsData reports whether bytes can be the data of a message: JSON that can be understood in one way
// alone, and not null.
func IsData(b []byte) bool {
	var raw json.RawMessage
	return strictjson.Unmarshal(b, &raw) == nil && !isNull(raw)
}

// inOtherCase finds an attribute that is none of CloudEvents, whose names are in lower case, but
// which a reader that is less exact takes for this one.
func inOtherCase(attributes map[string]json.RawMessage, known string) (name string, found bool) {
	for name := range attributes {
		if name != known && strings.EqualFold(name, known) {
			return name, true
		}
	}
	return "", false
}

// decodeExtensions takes what is left once the known attributes are gone.
func (ce *CloudEvent) decodeExtensions(attributes map[string]json.RawMessage) error {
	for name, raw := range attributes {
		var value any
		if err := decodeNumbers(raw, &value); err != nil {
			return decodeFlaw(FormatCloudEvents, formatRemedy, "attribute %s: %w", name, err)
		}
		if value == nil {
			continue // as good as absent, says the JSON format
		}
		if ce.Extensions == nil {
			ce.Extensions = make(Extensions, len(attributes))
		}
		ce.Extensions[name] = value
	}
	return nil
}

// message maps the attributes back; the streams are not among them.
func (ce *CloudEvent) message() (*Message, error) {
	id, err := uuid.Parse(ce.ID)
	if err != nil || id == uuid.Nil {
		return nil, decodeFlaw(FormatCloudEvents, "read events of other producers with DecodeCloudEvent",
			"attribute id is %q, not a UUID", ce.ID)
	}
	if ce.Data == nil && ce.Binary == nil {
		return nil, decodeFlaw(FormatCloudEvents, "read events of other producers with DecodeCloudEvent", "member data is missing")
	}
	m := &Message{
		Data: ce.Data,
		Metadata: Metadata{
			Headers:  Headers{ID: id, Time: ce.Time, Type: ce.Type},
			Envelope: Envelope{SpecVersion: specVersion},
			Domain: Domain{
				Kind:          kindEvent,
				SequenceID:    plainSequence(ce.Sequence),
				CorrelationID: ce.CorrelationID,
				CausationID:   ce.CausationID,
			},
		},
	}
	if parent, ok := ParseTraceParent(ce.TraceParent); ok {
		m.Metadata.Headers.TraceParent = &parent
	}
	for name, value := range ce.Extensions {
		if name == cloudEventExtensionName(ExtensionTenantID) {
			name = ExtensionTenantID
		}
		if m.Metadata.Extensions == nil {
			m.Metadata.Extensions = make(Extensions, len(ce.Extensions))
		}
		m.Metadata.Extensions[name] = value
	}
	return m, nil
}
