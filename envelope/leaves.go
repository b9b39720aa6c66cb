package envelope

import "reflect"

// The values of [EventType.KeyedBy].
const (
	keyedByAggregate = "aggregate"
	keyedByEvent     = "event"
	keyedByNothing   = "none"
)

// DataType returns the Go type whose JSON is the data of what leaves: that of the
// event itself.
func (t *EventType) DataType() reflect.Type { return t.goType }

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
