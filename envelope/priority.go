package envelope

// PriorityLevel says which of two messages that are both ready is delivered
// first. It never changes the order of messages that share an ordering key.
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
