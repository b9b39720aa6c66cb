package outbox

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/gorm-fanout/fanout/envelope"
)

// CheckEvents reports everything that is wrong with the routing and with the event types of a catalog
// that are to be routed by it, all problems joined in one error. It logs a warning about what is
// odd, and may be meant: another program with the same configuration may emit what this one does
// not. Writers call it once, when they are made.
func (r Routing) CheckEvents(events *envelope.Catalog, log *slog.Logger) error {
	if events == nil {
		return errors.New("there is no catalog: make one with envelope.NewCatalog and register the event types")
	}
	if err := errors.Join(events.Err(), r.Validate()); err != nil {
		return err
	}
	r = r.WithDefaults()
	var (
		problems  []error
		published []string
	)
	for _, event := range events.Types() {
		for _, broker := range event.Brokers() {
			if !r.isExternal(broker) {
				problems = append(problems, r.unknown(event.WireType(), broker))
			}
		}
		if event.Published() {
			published = append(published, event.WireType())
			if len(r.External) == 0 {
				log.Warn("published event type without external brokers", "type", event.WireType())
			}
		}
	}
	for i := range r.External {
		route := &r.External[i]
		if route.Format == envelope.FormatCloudEvents {
			if err := events.ValidateCloudEvents(route.Extensions...); err != nil {
				problems = append(problems, fmt.Errorf("external broker %q: %w", route.Broker, err))
			}
		}
		if len(published) > 0 && !slices.ContainsFunc(published, route.Passes) {
			log.Warn("broker filter passes none of the published event types", "broker", route.Broker, "filter", route.Types, "types", published)
		}
	}
	return errors.Join(problems...)
}
