package envelope

import "slices"

// The values of [EventType.KeyedBy].
const (
	keyedByAggregate = "aggregate"
	keyedByEvent     = "event"
	keyedByNothing   = "none"
)

// Headers returns the names of the flat fields that go beside such events by the option
// [Header], sorted. Any of them can be absent.
func (t *EventType) Headers() []string {
	names := make([]string, len(t.settings.headers))
	for i, h := range t.settings.headers {
		names[i] = h.name
	}
	slices.Sort(names)
	return names
}

// ChoosesDestination reports whether such events have the option [Destination].
func (t *EventType) ChoosesDestination() bool { return t.settings.destination != nil }

// KeyedBy returns what the ordering key of such events is made of, unless one says
// otherwise when it is raised: "aggregate" for the stream of the aggregate
// instance, which an event without an aggregate does not have, "event" for what
// the option [Key] derives, "none" for [Unordered].
func (t *EventType) KeyedBy() string {
	switch {
	case t.settings.unordered:
		return keyedByNothing
	case t.settings.key != nil:
		return keyedByEvent
	default:
		return keyedByAggregate
	}
}
