package admin

import (
	"time"

	"github.com/gorm-fanout/fanout/outbox"
)

// A Filter selects rows for an operator. Its conditions are joined by AND; a zero field matches
// everything. Broker, status and message id are looked up; every other condition is tried on each
// row that these leave, and for published rows that may be most of the table. Rows are looked for
// before any lock is taken, so a slow search holds up no delivery.
type Filter struct {
	// Broker that the rows are for.
	Broker string
	// Statuses of the rows. Empty: those that the action is for.
	Statuses []outbox.Status
	// Type is an event type on the wire, or the beginning of some when it ends with "*". Nothing
	// else in it is a wildcard.
	Type string
	// Key is an ordering key, with its context or without: one without "::" matches that key in all
	// contexts. KeyPrefix is the beginning of some, with their contexts.
	Key, KeyPrefix string
	// Aggregate is an aggregate's id, with its type or without: 42, order-42 or "order 42".
	Aggregate string
	// Correlation and Tenant are the ids of a process and of a tenant.
	Correlation, Tenant string
	// MessageIDs of the rows, in text form. Empty: any.
	MessageIDs []string
	// ErrorClass is the class in last_error.
	ErrorClass string
	// Since and Until bound created_at: from Since on, before Until.
	Since, Until time.Time
	// Blocking selects only abandoned rows for which an ordering key waits until an operator acts
	// (on_abandon: block).
	Blocking bool
	// Unacknowledged leaves out rows that an operator has acknowledged.
	Unacknowledged bool
}

// A BlockedKey waits behind an abandoned row.
type BlockedKey struct {
	Broker, Key string
	// MessageID of the abandoned row.
	MessageID string
	Since     time.Time
}
