package outbox

import (
	"context"
	"time"
)

// A Filter selects rows for an operator. Its conditions are joined by AND; a zero field matches everything. Broker, status
// and message id are looked up; every other condition is tried on each row that these leave, and for published rows that
// may be most of the table. Rows are looked for before any lock is taken, so a slow search holds up no delivery.
type Filter struct {
	// Broker that the rows are for.
	Broker string
	// Statuses of the rows. Empty: those that the action is for.
	Statuses []Status
	// Type is an event type on the wire, or the beginning of some when it ends with "*". Nothing else in it is a wildcard.
	Type string
	// Key is an ordering key.
	Key string
	// MessageIDs of the rows, in text form. Empty: any.
	MessageIDs []string
	// ErrorClass is the class in last_error.
	ErrorClass string
	// Since and Until bound created_at: from Since on, before Until.
	Since, Until time.Time
}

// An Operator repairs by hand. Each call changes a bounded number of rows, oldest first, in transactions that keep clear of
// claims, and returns how many; call it again until it returns less than limit. Rows that a worker has claimed are left
// alone, until their lease is over: then their worker has died, or may no longer write down what became of them. It may
// deliver the one that it was sending at that moment, though.
//
// What comes back takes its old place: a row that is requeued or replayed holds the later open rows of its ordering key
// until it is done, and is itself held by the earlier ones. What was delivered meanwhile stays delivered, and what a worker
// has claimed at that moment may be delivered beside it.
// A store that is a [Listener] tells the relays after each call what can be delivered now, so that they need not find it by polling.
//
// An error names what was refused: a limit below 1, a status that the action is not for, a message id that is no UUID.
type Operator interface {
	// Requeue makes failed and abandoned rows, processing ones whose lease is over, and pending ones that wait for a time, claimable at once with a fresh budget of
	// attempts: it resets attempts, crashes, the backoff and available_at. A pending row that is deferred behind another one of its key waits
	// for no time of its own, and is left as it is: requeue the row that it waits for ([Record.Deferral]). last_error stays until the next failure. A time to
	// live that has passed is taken off, and one that has not stays, unless [WithTTL] gives all rows a new one. Rows that are
	// malformed by their last_error are left out, as they would be abandoned again, unless the filter names that class
	// ([ClassMalformed]), for those that were corrected in the table. A key that is blocked behind an abandoned row goes
	// on when that row is requeued and done; one that is blocked behind another row stays blocked.
	Requeue(ctx context.Context, filter Filter, limit int, opts ...RequeueOption) (int, error)
	// Replay makes published rows pending again, with a fresh budget of attempts. They are delivered under the same message id.
	// broker_message_id stays until the next delivery. A time to live that has passed is taken off.
	Replay(ctx context.Context, filter Filter, limit int) (int, error)
	// Abandon abandons pending and failed rows, and processing ones whose lease is over. reason goes into last_error, with the class "operator". Their keys go on, also
	// where an abandoned row would block them.
	Abandon(ctx context.Context, filter Filter, reason string, limit int) (int, error)
	// Matches counts the rows that a filter selects, of any status where it names none, up to limit. Rows that a worker has claimed do not
	// count; deferred rows do. An action changes no more than those: Requeue leaves out pending rows that wait for no time of their own.
	Matches(ctx context.Context, filter Filter, limit int) (int, error)
	// UnblockKey lets a key go on that is blocked behind an abandoned row, without that row. ok is false when it is not blocked.
	UnblockKey(ctx context.Context, broker, key string) (ok bool, err error)
	// BlockedKeys lists the keys that wait for an operator, oldest first, up to limit; of all brokers where broker is empty.
	BlockedKeys(ctx context.Context, broker string, limit int) ([]BlockedKey, error)
}

// A BlockedKey waits behind an abandoned row.
type BlockedKey struct {
	Broker, Key string
	// MessageID of the abandoned row.
	MessageID string
	Since     time.Time
}
