package outbox

import (
	"context"
	"time"
)

// An Auditor keeps a record of what operators have done, in a table of the database. Entries stay until somebody removes them.
type Auditor interface {
	// BeginAudit records that an action begins, with the database's time, and returns the entry's id. So what was begun and never
	// ended, because the process died, can be seen.
	BeginAudit(ctx context.Context, entry AuditEntry) (id int64, err error)
	// EndAudit records how it ended: how many rows were changed, and the error, empty where there was none. An entry that has ended stays as it is.
	EndAudit(ctx context.Context, id, rows int64, failure string) error
	// Audit lists entries, newest first, those before an id (0 = from the newest), up to limit.
	Audit(ctx context.Context, before int64, limit int) ([]AuditEntry, error)
}

// An AuditEntry is one action of an operator.
type AuditEntry struct {
	ID int64
	// Actor is who did it, and Via how: cli, http or go.
	Actor, Via string
	// Action is requeue, abandon, replay, release, purge, pause or resume; reveal for a look at payload and headers; inbox redrive and inbox
	// reveal for what was done to the dead letters of a consumer. Broker is empty where it was for all.
	Action, Broker string
	// Filter is what it was done to, as a JSON object; Reason is why. Either may be empty.
	Filter, Reason string
	// Rows that were changed, or shown.
	Rows int64
	// StartedAt and EndedAt by the database's clock; EndedAt is zero while it is under way, or where the process died.
	StartedAt, EndedAt time.Time
	// Failure is the error with which it ended.
	Failure string
}
