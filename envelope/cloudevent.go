package envelope

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// CloudEventOptions shape the CloudEvents form. The zero value is the default.
type CloudEventOptions struct {
	// Source is the attribute of that name, a URI-reference. The default is
	// /<context>/<aggregate>, without an aggregate /<context>.
	Source string
	// Extensions names those of the message that leave with it, as extension
	// attributes; tenant_id and actor are two like any other. Default: none.
	Extensions []string
	// TraceState lets the W3C tracestate leave, which vendors of tracing write; see
	// [Include]. Default: false.
	TraceState bool
	// JSON has the data leave as JSON also where its type has an [Encoding]. Default: false;
	// such data is in data_base64, and datacontenttype says what it is.
	JSON bool
}

// Validate checks the options, for start-up.
func (o CloudEventOptions) Validate() error {
	problems := []error{o.validateSource()}
	attributes := make(map[string]string, len(o.Extensions))
	for _, name := range o.Extensions {
		err := checkCloudEventExtension(name, nil)
		if earlier, taken := attributes[cloudEventExtensionName(name)]; err == nil && taken {
			err = fmt.Errorf("extensions %q and %q become one attribute", earlier, name)
		}
		if err != nil {
			problems = append(problems, &RegisterError{"check extensions for CloudEvents", err, cloudEventRemedy})
		}
		attributes[cloudEventExtensionName(name)] = name
	}
	return errors.Join(problems...)
}

func (o CloudEventOptions) validateSource() error {
	if o.Source == "" {
		return nil
	}
	_, err := url.Parse(o.Source)
	if err == nil {
		err = textFlaw(o.Source)
	}
	if err == nil && strings.ContainsAny(o.Source, " <>\"{}|\\^`") {
		err = errors.New("it contains a character that must be percent-encoded")
	}
	if err != nil {
		return &RegisterError{
			fmt.Sprintf("set CloudEvents source %q", o.Source), err,
			`use a URI-reference such as "https://shop.example.com/ordering", or leave it out`,
		}
	}
	return nil
}

// CloudEvent is a message in the CloudEvents 1.0 format, structured JSON: the list
// of what leaves in that form. Strings that are empty are absent on the wire.
// Source: https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md and
// formats/json-format.md beside it.
type CloudEvent struct {
	ID              string    // headers.id
	Source          string    // see CloudEventOptions
	Type            string    // headers.type
	Subject         string    // id of the aggregate
	Time            time.Time // headers.time
	DataContentType string    // "application/json"
	TraceParent     string    // W3C; this and TraceState are the Distributed Tracing extension
	TraceState      string    // W3C
	PartitionKey    string    // ordering key
	Sequence        string    // sequence_id, padded; see CompareSequence
	CorrelationID   string
	CausationID     string
	Extensions      Extensions // other attributes: bool, string, json.Number
	// Data is the data where it is JSON.
	Data json.RawMessage
	// Binary is the data as bytes: decoded data_base64, or the body of an event in binary mode
	// whose datacontenttype is not JSON, or whose body is not. Data is set as well where these
	// bytes are JSON.
	Binary []byte
}

// MarshalCloudEvent returns the message as a CloudEvent in structured JSON, its media type being
// that of [FormatCloudEvents]. Of the extensions it has those that the options name. Extension
// attributes take booleans, 32-bit integers and strings; other numbers travel as strings, null is
// left out. The extension tenant_id becomes tenantid.
//
// The error is a *[NotPublishedError] for an event type that is not marked
// [Published], a *[RegisterError] for a bad source, or an *[EncodeError] for an
// extension that CloudEvents cannot carry.
func (m *Message) MarshalCloudEvent(opts CloudEventOptions) ([]byte, error) {
	if err := m.mayLeave(); err != nil {
		return nil, err
	}
	if err := opts.validateSource(); err != nil {
		return nil, err
	}
	extensions, err := cloudEventExtensions(m.Metadata.Extensions.only(opts.Extensions))
	if err != nil {
		return nil, &EncodeError{m.Metadata.Headers.Type, err, cloudEventRemedy}
	}
	h, d, r := &m.Metadata.Headers, &m.Metadata.Domain, &m.Routing
	ce := CloudEvent{
		ID:              h.ID.String(),
		Source:          opts.Source,
		Type:            h.Type,
		Subject:         r.AggregateID,
		Time:            h.Time,
		DataContentType: FormatNative.ContentType(),
		TraceParent:     r.TraceParent,
		PartitionKey:    r.OrderingKey,
		Sequence:        paddedSequence(d.SequenceID),
		CorrelationID:   d.CorrelationID,
		CausationID:     d.CausationID,
		Extensions:      extensions,
		Data:            m.Data,
	}
	if !opts.JSON && r.encoded != nil {
		ce.DataContentType, ce.Data, ce.Binary = r.Type.settings.encoding.ContentType, nil, r.encoded
	}
	if opts.TraceState {
		ce.TraceState = r.TraceState
	}
	if ce.Source == "" {
		ce.Source = cloudEventSource(d.StreamCategory)
	}
	w := writer{b: make([]byte, 0, m.sizeHint()+base64.StdEncoding.EncodedLen(len(ce.Binary)))}
	ce.write(&w)
	return w.b, m.writeError(w.err)
}

func (ce *CloudEvent) write(w *writer) {
	w.open()
	w.string("specversion", specVersion)
	w.string("id", ce.ID)
	w.string("source", ce.Source)
	w.string("type", ce.Type)
	w.optional("subject", ce.Subject)
	w.time("time", ce.Time)
	w.string("datacontenttype", ce.DataContentType)
	w.optional("traceparent", ce.TraceParent)
	w.optional("tracestate", ce.TraceState)
	w.optional("partitionkey", ce.PartitionKey)
	w.optional("sequence", ce.Sequence)
	w.optional("correlationid", ce.CorrelationID)
	w.optional("causationid", ce.CausationID)
	w.members(ce.Extensions)
	if ce.Data == nil && ce.Binary != nil {
		w.base64(memberBase64, ce.Binary)
	} else {
		w.raw("data", ce.Data)
	}
	w.close()
}

func cloudEventSource(category string) string {
	context, aggregate, found := strings.Cut(category, "::")
	source := "/" + url.PathEscape(context)
	if found {
		source += "/" + url.PathEscape(aggregate)
	}
	return source
}

// cloudEventAttributes are taken: by CloudEvents and by us.
var cloudEventAttributes = []string{
	"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "data",
	"traceparent", "tracestate", "partitionkey", "sequence", "correlationid", "causationid",
}

const cloudEventRemedy = "rename the extension to 1 to 20 characters a-z and 0-9 not taken by CloudEvents, " +
	"make its value a string, a number or a boolean, or set format: native for the broker"

// ValidateCloudEventExtension reports whether an extension of this name can travel in
// the CloudEvents form: 1 to 20 characters a-z and 0-9, and not the name of an
// attribute that the form has already. tenant_id can, as tenantid.
func ValidateCloudEventExtension(name string) error {
	if err := checkCloudEventExtension(name, ""); err != nil {
		return &RegisterError{"check extensions for CloudEvents", err, cloudEventRemedy}
	}
	return nil
}

func checkCloudEventExtension(name string, value any) error {
	attribute := cloudEventExtensionName(name)
	switch value.(type) {
	case []any, map[string]any:
		return fmt.Errorf("extension %q is an array or object", name)
	}
	switch {
	case attribute == "" || len(attribute) > 20 || !containsOnly(attribute, isLowerASCII, isDigit):
		return fmt.Errorf("extension %q cannot be the name of an attribute", name)
	case slices.Contains(cloudEventAttributes, attribute):
		return fmt.Errorf("extension %q has the name of another attribute", name)
	}
	return nil
}

// cloudEventExtensionName renames our own, whose names the format does not allow.
func cloudEventExtensionName(name string) string {
	if name == ExtensionTenantID {
		return "tenantid"
	}
	return name
}

func cloudEventExtensions(extensions Extensions) (Extensions, error) {
	var attributes Extensions
	if len(extensions) == 0 {
		return attributes, nil
	}
	attributes = make(Extensions, len(extensions))
	for name, value := range extensions {
		value, err := normalize(value)
		if err == nil {
			err = checkCloudEventExtension(name, value)
		}
		if err != nil {
			return nil, err
		}
		attribute := cloudEventExtensionName(name)
		if _, taken := attributes[attribute]; taken {
			return nil, fmt.Errorf("two extensions become the attribute %q", attribute)
		}
		if number, ok := value.(json.Number); ok {
			// The type system has 32-bit integers only; a string is what every
			// other number becomes in the binary mode of the same standard.
			if _, err := strconv.ParseInt(number.String(), 10, 32); err != nil {
				value = number.String()
			}
		}
		if value != nil {
			attributes[attribute] = value
		}
	}
	return attributes, nil
}
