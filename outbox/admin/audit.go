package admin

import (
	"time"
)

// An AuditEntry is one action of an operator.
type AuditEntry struct {
	ID int64
	// Actor is who did it, and Via how: cli, http or go.
	Actor, Via string
	// Action is requeue, abandon, replay, release, purge, pause or resume; reveal for a look at
	// payload and headers; inbox redrive and inbox reveal for what was done to the dead letters of
	// a consumer. Broker is empty where it was for all.
	Action, Broker string
	// Filter is what it was done to, as a JSON object; Reason is why. Either may be empty.
	Filter, Reason string
	// Rows that were changed, or shown.
	Rows int64
	// StartedAt and EndedAt by the database's clock; EndedAt is zero while it is in progress, or
	// where the process died.
	StartedAt, EndedAt time.Time
	// Failure is the error with which it ended.
	Failure string
}
