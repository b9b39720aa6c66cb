package contract

import (
	"errors"
	"fmt"
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
	if err := errors.Join(events.Err(), routing.Validate()); err != nil {
		return fmt.Errorf("contract: describe the events: %w", err)
	}
	described := file{Version: version, Context: events.Context(), Brokers: map[string]*broker{}}
	routing = routing.WithDefaults()
	schemas := map[string]*jsonschema.Schema{}
	for _, t := range events.Types() {
		if !t.Published() {
			continue
		}
		for _, name := range t.Brokers() {
			if !slices.ContainsFunc(routing.External, func(r outbox.Route) bool { return r.Broker == name }) {
				return fmt.Errorf("contract: event %s is addressed to broker %q, which is no external broker: correct envelope.To, or the routing", t.WireType(), name)
			}
		}
		s, notes, err := jsonschema.Of(t.DataType())
		if err != nil {
			return fmt.Errorf("contract: describe event %s: %w", t.WireType(), err)
		}
		alone := *s.NotNull() // an event whose data is null is refused
		alone.Dialect, alone.ID = jsonschema.Dialect, "urn:event:"+t.WireType()
		schemas[t.WireType()] = &alone
		described.Warnings = append(described.Warnings, notes...)
	}
	slices.Sort(described.Warnings)
	described.Warnings = slices.Compact(described.Warnings) // two events can have one type within them
	for i := range routing.External {
		route := &routing.External[i]
		b, err := observe(events.Context(), *route)
		if err != nil {
			return fmt.Errorf("contract: describe broker %q: %w", route.Broker, err)
		}
		for _, t := range events.Types() {
			if t.Published() && route.Passes(t.WireType()) && (t.Brokers() == nil || slices.Contains(t.Brokers(), route.Broker)) {
				b.Types[t.WireType()] = &eventType{
					Destination: destination(route.Destination, events.Context(), t), Key: t.KeyedBy(), Data: schemas[t.WireType()],
				}
			}
		}
		described.Brokers[route.Broker] = b
	}
	d.file = described
	return nil
}

// destination is the template of a route with what the event type decides filled in.
func destination(template, context string, t *envelope.EventType) string {
	if template == "" {
		return "{stream}"
	}
	return strings.NewReplacer("{context}", context, "{type}", t.WireType()).Replace(template)
}
