package contract

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/jsonschema"
	"github.com/gorm-fanout/fanout/outbox"
)

// Describe fills the document with what the published events of a catalog are outside, by the
// routing of the application: config.Config has it. Options that are given when an event is raised
// are not known here: with envelope.To, Key and Unordered that event differs, within its schema.
//
// The error is what is wrong with the catalog or the routing, or says which event type encoding/json
// does not encode. The document is unchanged then.
func (d *Document) Describe(events *envelope.Catalog, routing outbox.Routing) error {
	if events == nil {
		return errors.New("contract: describe the events: the catalog is nil: pass the one that gormplugin.New gets")
	}
	if err := routing.CheckEvents(events, slog.New(slog.DiscardHandler)); err != nil {
		return fmt.Errorf("contract: describe the events: %w", err)
	}
	whole := file{Version: version, Context: events.Context(), Brokers: map[string]*broker{}}
	routing = routing.WithDefaults()
	schemas := map[*envelope.EventType]described{} // by what leaves
	for _, t := range events.Types() {
		for _, leaving := range t.Contracts() {
			one, notes, err := schemaOf(leaving, events.CamelCase())
			if err != nil {
				return fmt.Errorf("contract: describe event %s: %w", leaving.WireType(), err)
			}
			alone := *one.schema.NotNull() // an event whose data is null is refused
			alone.Dialect, alone.ID = jsonschema.Dialect, "urn:event:"+leaving.WireType()
			one.schema = &alone
			schemas[leaving] = one
			whole.Warnings = append(whole.Warnings, notes...)
		}
	}
	slices.Sort(whole.Warnings)
	whole.Warnings = slices.Compact(whole.Warnings) // two events can have one type within them
	for i := range routing.External {
		route := &routing.External[i]
		b, err := describeBroker(events, route, schemas)
		if err != nil {
			return fmt.Errorf("contract: describe broker %q: %w", route.Broker, err)
		}
		whole.Brokers[route.Broker] = b
	}
	d.file = whole
	return nil
}

// describeBroker describes what leaves to a broker.
func describeBroker(events *envelope.Catalog, route *outbox.Route, schemas map[*envelope.EventType]described) (*broker, error) {
	b, err := observe(events.Context(), *route)
	if err != nil {
		return nil, err
	}
	for _, t := range events.Types() {
		for _, leaving := range t.Contracts() {
			if route.Passes(leaving.WireType()) && isFor(t, route.Broker) && isFor(leaving, route.Broker) {
				b.add(route, events.Context(), t, leaving, schemas[leaving])
			}
		}
	}
	return b, b.observeBare(events.Context(), *route)
}

// schemaOf describes the data of what leaves.
func schemaOf(leaving *envelope.EventType, camelCase bool) (d described, notes []string, err error) {
	if encoding, has := leaving.Encoding(); has && (encoding.MarshalJSON != nil || encoding.Describe != nil) {
		d, err = describeEncoding(encoding)
		return d, nil, err
	}
	d.schema, notes, err = jsonschema.Of(leaving.GoType(), camelCase)
	return d, notes, err
}

// add describes what leaves of an event type.
func (b *broker) add(route *outbox.Route, context string, t, leaving *envelope.EventType, data described) {
	one := &eventType{
		Destination: destination(route.Destination, context, leaving, t.ChoosesDestination()), Key: t.KeyedBy(), Headers: t.Headers(), Data: data.schema,
	}
	if encoding, has := leaving.Encoding(); has && !route.JSON {
		one.ContentType, one.Layout = encoding.ContentType, data.layout
	}
	if route.Include.FQN && one.ContentType == "" { // which is in the envelope
		one.FQN = leaving.FQN()
	}
	one.merge(b.Types[leaving.WireType()])
	b.Types[leaving.WireType()] = one
}

// merge adds what is said of another event that is the same to partners: its data is of the same Go type.
func (t *eventType) merge(earlier *eventType) {
	if earlier == nil {
		return
	}
	if !slices.Contains(strings.Split(earlier.Destination, anyOf), t.Destination) {
		earlier.Destination += anyOf + t.Destination
	}
	t.Destination = earlier.Destination
	if t.Key != earlier.Key {
		t.Key = unordered // of messages of this type alone nothing can be said
	}
	t.Headers = append(t.Headers, earlier.Headers...)
	slices.Sort(t.Headers)
	t.Headers = slices.Compact(t.Headers)
}

// anyOf is between destinations.
const anyOf = " or "

// isFor reports whether an event type, or a contract, is for a broker.
func isFor(t *envelope.EventType, broker string) bool {
	return t.Brokers() == nil || slices.Contains(t.Brokers(), broker)
}

// destination is the template of a route with what the event type decides filled in. An event that chooses
// its destination has that for the stream.
func destination(template, context string, t *envelope.EventType, chosen bool) string {
	switch {
	case template == "" && chosen:
		return "{destination}"
	case template == "":
		return "{stream}"
	case chosen:
		return strings.NewReplacer("{stream}", "{destination}", "{type}", t.WireType()).Replace(template)
	}
	return strings.NewReplacer("{context}", context, "{type}", t.WireType()).Replace(template)
}
