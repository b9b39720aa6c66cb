package envelope

// PriorityLevel says how much a message matters. It travels with the message
// (domain.priority, internal form only) and stands in the outbox row; brokers can
// act on it, as Redis Streams does with its backfill stream. It never changes the
// order in which rows are delivered.
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
