package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/jsonschema"
	"github.com/gorm-fanout/fanout/outbox"
)

// What a broker gets beside the data is observed, not listed: samples of messages are written as
// commits write them, and what they have is what leaves. A list here would be a second one beside
// that of package envelope, and could be wrong.

// first, second and third are events of the samples: three types, for what depends on the type.
type (
	first  struct{}
	second struct{}
	third  struct{}
)

// sample is one message, with all that can be said of it or as little as possible. No value of it
// is that of another sample, so that what is the same in the messages is so in all messages.
type sample struct {
	event   any
	raised  time.Time
	options []envelope.Option
	source  envelope.Source
	context envelope.Context
	// extension is the value of each extension.
	extension any
}

func samples() []sample {
	return []sample{
		{
			event: first{}, raised: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
			options: []envelope.Option{envelope.TTL(time.Hour), envelope.Key(func(first) string { return "a" })},
			source:  envelope.Source{Aggregate: "First", ID: "1", Version: 1, Sequence: 1},
			context: envelope.Context{
				CorrelationID: "correlation-1", CausationID: "cause-1", IdempotencyKey: "key-1", OriginStream: "origin::one-1", Actor: "actor-1",
				TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", TraceState: "a=1",
			},
			extension: "one",
		},
		{
			event: second{}, raised: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC),
			options: []envelope.Option{envelope.TTL(2 * time.Hour), envelope.Key(func(second) string { return "b" })},
			source:  envelope.Source{Aggregate: "Second", ID: "2", Version: 2, Sequence: 2},
			context: envelope.Context{
				CorrelationID: "correlation-2", CausationID: "cause-2", IdempotencyKey: "key-2", OriginStream: "origin::two-2", Actor: "actor-2",
				TraceParent: "00-1af7651916cd43dd8448eb211c80319d-c7ad6b7169203332-00", TraceState: "b=2",
			},
			extension: 2,
		},
		{event: third{}, raised: time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC), extension: true},
	}
}

// observe describes what a broker gets beside the data.
func observe(context string, route outbox.Route) (*broker, error) {
	events, err := sampleEvents(context)
	if err != nil {
		return nil, err
	}
	b := &broker{Format: route.Format, Types: map[string]*eventType{}}
	var headers, envelopes, extended []any
	for _, s := range samples() {
		plain, bare := route, s
		plain.Extensions, bare.extension = nil, nil
		row, err := bare.write(events, plain)
		if err != nil {
			return nil, err
		}
		payload, err := payloadOf(row)
		if err != nil {
			return nil, err
		}
		fields, err := flatFields(row)
		if err != nil {
			return nil, err
		}
		b.ContentType = row.ContentType
		headers, envelopes = append(headers, fields), append(envelopes, payload)
		if len(route.Extensions) == 0 {
			continue
		}
		row, err = s.write(events, route)
		if err != nil {
			return nil, err
		}
		with, err := payloadOf(row)
		if err != nil {
			return nil, err
		}
		extended = append(extended, extensionsIn(with, payload, route.Format))
	}
	b.Headers, b.Envelope = jsonschema.Infer(headers...), jsonschema.Infer(envelopes...)
	if source := b.Envelope.Properties["source"]; route.Format == envelope.FormatCloudEvents && route.Source == "" && source != nil {
		source.Pattern = "^/" + regexp.QuoteMeta(url.PathEscape(context)) + "(/|$)" // one that is set is another one
	}
	if len(extended) > 0 {
		b.extend(extended, &route)
	}
	return b, nil
}

// sampleEvents are the types of the samples.
func sampleEvents(context string, more ...envelope.Option) (*envelope.Catalog, error) {
	events := envelope.NewCatalog(context)
	options := func(version int) []envelope.Option {
		return append([]envelope.Option{envelope.Published(), envelope.Version(version)}, more...)
	}
	envelope.Register[first](events, options(1)...)
	envelope.Register[second](events, options(2)...)
	envelope.Register[third](events, options(3)...)
	return events, events.Err()
}

// observeBare describes the flat fields of messages that are the data alone, where there are such.
func (b *broker) observeBare(context string, route outbox.Route) error {
	own := ""
	for _, t := range b.Types {
		own = max(own, t.ContentType)
	}
	if own == "" || route.Format != envelope.FormatNative {
		return nil
	}
	events, err := sampleEvents(context, envelope.Encoding{ContentType: own, Marshal: func(any) ([]byte, error) { return nil, nil }})
	if err != nil {
		return err
	}
	var headers []any
	for i, s := range samples() {
		row, err := s.write(events, route)
		if err != nil {
			return err
		}
		row.ContentType = fmt.Sprint("text ", i) // that of each type, which says what it is
		fields, err := flatFields(row)
		if err != nil {
			return err
		}
		headers = append(headers, fields)
	}
	b.BareHeaders = jsonschema.Infer(headers...)
	return nil
}

// extend describes the extensions that a broker lists, of which there are samples.
func (b *broker) extend(samples []any, route *outbox.Route) {
	b.Extensions = jsonschema.Infer(samples...).Properties
	for _, name := range route.Extensions {
		switch _, listed := b.Extensions[name]; {
		case name == envelope.ExtensionTenantID || name == envelope.ExtensionActor:
		case listed && route.Format == envelope.FormatNative:
			b.Extensions[name] = &jsonschema.Schema{} // any JSON; a CloudEvent has scalars only
		}
	}
}

// write is the row that a commit would write for the broker.
func (s *sample) write(events *envelope.Catalog, route outbox.Route) (*outbox.Row, error) {
	route.Types = nil // the samples stand for those that pass
	cx := s.caused(events)
	for _, name := range route.Extensions {
		value := s.extension
		if name == envelope.ExtensionTenantID || name == envelope.ExtensionActor {
			value = fmt.Sprint("text-", s.extension)
		}
		cx.Extensions = with(cx.Extensions, name, value)
	}
	// Ids and times are those of the sample: drawn ones could be the same for two.
	event := envelope.Event{
		ID: uuid.NewSHA1(uuid.NameSpaceOID, []byte(s.raised.String())), Time: s.raised, Data: s.event, Options: s.options,
	}
	message, err := events.Seal(event, s.source, cx)
	if err != nil {
		return nil, err
	}
	routing := outbox.Routing{InternalBroker: "internal of " + route.Broker, External: []outbox.Route{route}}.WithDefaults()
	rows, err := routing.AppendRows(nil, message)
	if err != nil {
		return nil, err
	}
	return &rows[len(rows)-1], nil
}

// payloadOf is the payload of a row, without the data.
func payloadOf(row *outbox.Row) (map[string]any, error) {
	decoder := json.NewDecoder(bytes.NewReader(row.Payload))
	decoder.UseNumber()
	var payload map[string]any
	if err := decoder.Decode(&payload); err != nil {
		return nil, err
	}
	delete(payload, "data")
	return payload, nil
}

// caused is the context of the sample. Where it has an origin, that is a message that was published.
func (s *sample) caused(events *envelope.Catalog) envelope.Context {
	if s.context.OriginStream == "" {
		return s.context
	}
	cause := &envelope.Message{Metadata: envelope.Metadata{Headers: envelope.Headers{Type: events.Types()[0].WireType(), Stream: s.context.OriginStream}}}
	cx := envelope.FromContext(envelope.WithCause(context.Background(), cause))
	cx.CorrelationID, cx.CausationID, cx.IdempotencyKey, cx.Actor = s.context.CorrelationID, s.context.CausationID, s.context.IdempotencyKey, s.context.Actor
	cx.TraceParent, cx.TraceState = s.context.TraceParent, s.context.TraceState
	return cx
}

func with(extensions map[string]any, name string, value any) map[string]any {
	if extensions == nil {
		extensions = map[string]any{}
	}
	extensions[name] = value
	return extensions
}

// extensionsIn are the members that a payload has more than it has without extensions.
func extensionsIn(payload, without map[string]any, format envelope.Format) map[string]any {
	found := map[string]any{}
	if format == envelope.FormatNative {
		metadata, _ := payload["metadata"].(map[string]any)
		found, _ = metadata["extensions"].(map[string]any)
		return found
	}
	for name, value := range payload {
		if _, known := without[name]; !known {
			found[name] = value
		}
	}
	return found
}

// flatFields are what a relay hands to the broker beside the payload.
func flatFields(row *outbox.Row) (map[string]any, error) {
	m := brokers.Message{
		ID: row.MessageID.String(), Type: row.Type, OrderingKey: row.OrderingKey, CorrelationID: row.CorrelationID, ContentType: row.ContentType,
	}
	var err error
	if row.Headers != "" {
		m.Attributes, err = outbox.ParseHeaders(row.Headers)
	}
	fields := map[string]any{}
	for name, value := range m.Fields {
		fields[name] = value
	}
	return fields, err
}
