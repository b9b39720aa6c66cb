package outbox

import "slices"

// Status is the state of one row: one message on its way to one broker.
//
//	pending ──claim──▶ processing ──delivered──▶ published
//	                    │    ▲
//	            retryable    │ claim, once the backoff is over
//	                    ▼    │
//	                    failed ──▶ (claimed again)
//	processing ──permanent, expired, or attempts used up──▶ abandoned
//	processing ──released, or the lease ran out──▶ claimable again
//
// published and abandoned are terminal: only an operator's action leaves them.
type Status string

// The states of a row, as they stand in the status column.
const (
	StatusPending    Status = "pending"
	StatusProcessing Status = "processing"
	StatusPublished  Status = "published"
	StatusFailed     Status = "failed"
	StatusAbandoned  Status = "abandoned"
)

// Statuses lists all states in the order in which a row can pass through them.
func Statuses() []Status {
	return []Status{StatusPending, StatusProcessing, StatusFailed, StatusPublished, StatusAbandoned}
}

// Terminal reports whether the row is done: published or abandoned.
func (s Status) Terminal() bool { return s == StatusPublished || s == StatusAbandoned }

// Valid reports whether s is one of the five states.
func (s Status) Valid() bool { return slices.Contains(Statuses(), s) }
