package envelope

// PriorityLevel says how much a message matters. It travels with the message
// (domain.priority, internal form only) and stands in the outbox row; brokers can
// act on it, as Redis Streams does with its backfill stream.
//
// Relays deliver what is below [PriorityNormal] beside the rest and in turns of its
// own, so that a backfill does not delay today's events; and what is above it and
// has no ordering key first. The events of a key keep their order among those below
// PriorityNormal and among the others, but not between the two: give all events of
// an aggregate one side where their order matters. Above PriorityNormal nothing
// overtakes within a key.
//
// Every value from [PriorityBulk] to [PriorityCritical] is valid, those between
// the named levels too.
//
// The level of an event is the first of: the option [Priority] at Raise or
// Publish, [WithPriority] on the context, the option at [Register],
// [PriorityNormal].
type PriorityLevel int

// The named levels, with their values on the wire (domain.priority).
const (
	PriorityBulk     PriorityLevel = -100
	PriorityLow      PriorityLevel = -50
	PriorityNormal   PriorityLevel = 0
	PriorityHigh     PriorityLevel = 50
	PriorityCritical PriorityLevel = 100
)

func (p PriorityLevel) valid() bool {
	return p >= PriorityBulk && p <= PriorityCritical
}
