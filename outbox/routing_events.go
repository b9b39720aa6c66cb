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
		problems = append(problems, r.checkBrokers(event))
		for _, leaving := range event.Contracts() {
			published = append(published, leaving.WireType())
			warnOfBrokers(event, leaving, log)
		}
		if event.Published() && len(r.External) == 0 {
			log.Warn("published event type without external brokers", "type", event.WireType())
		}
	}
	for _, warning := range events.Warnings() {
		log.Warn("contract fails on the zero value", "error", warning)
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

// warnOfBrokers is about a contract that never leaves, as it is for other brokers than its event.
func warnOfBrokers(event, contract *envelope.EventType, log *slog.Logger) {
	to, named := event.Brokers(), contract.Brokers()
	if to != nil && named != nil && !slices.ContainsFunc(named, func(broker string) bool { return slices.Contains(to, broker) }) {
		log.Warn("contract for none of the brokers of its event", "type", event.WireType(), "contract", contract.WireType(), "brokers", named)
	}
}

// checkBrokers reports brokers that an event type or its contracts name and that there are not, and those that
// the type names and no contract of it is for.
func (r Routing) checkBrokers(event *envelope.EventType) error {
	var problems []error
	named := event.Brokers()
	for _, contract := range event.Contracts() {
		named = append(named, contract.Brokers()...)
	}
	slices.Sort(named)
	for _, broker := range slices.Compact(named) {
		if !r.isExternal(broker) {
			problems = append(problems, r.unknown(event.WireType(), broker))
		}
	}
	for _, broker := range event.Brokers() {
		isFor := func(t *envelope.EventType) bool { return t.Brokers() == nil || slices.Contains(t.Brokers(), broker) }
		if event.Published() && !slices.ContainsFunc(event.Contracts(), isFor) {
			problems = append(problems, withoutContract(event.WireType(), broker))
		}
	}
	return errors.Join(problems...)
}

func withoutContract(eventType, broker string) error {
	return fmt.Errorf("outbox: event %s is addressed to broker %q, for which it has no contract: add an envelope.As that is for it", eventType, broker)
}
