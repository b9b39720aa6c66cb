package admin

import (
	"context"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
)

// An Administration is the outbox table of one database as the people who run it use it. It is safe
// for concurrent use.
//
// Looking: what it costs is bounded, whatever the size of the table. Lists are read page by page
// along an index, counts stop at a cap, and no more rows are read for a page than the request
// allows.
//
// Repairing: each call changes a bounded number of rows, oldest first, in transactions that keep
// clear of claims, and returns how many; call it again until it returns less than limit. Rows that
// a worker has claimed are left alone, until their lease is over: then their worker has died, or
// may no longer write down what became of them. It may deliver the one that it was sending at that
// moment, though.
//
// What comes back takes its old place: a row that is requeued or replayed holds the later open rows
// of its ordering key and priority class until it is done, and is itself held by the earlier ones. What was delivered
// meanwhile stays delivered, and what a worker has claimed at that moment may be delivered beside
// it. A store that is a listener tells the relays after each call what can be delivered
// now, so that they need not find it by polling.
//
// An error names what was refused: a limit below 1, a status that the action is not for, a message
// id that is no UUID.
type Administration interface { //nolint:interfacebloat // all that people ask of a table
	// Requeue makes failed and abandoned rows, processing ones whose lease is over, and pending
	// ones that wait for a time, claimable at once with a fresh budget of attempts: it resets
	// attempts, crashes, the backoff and available_at. A pending row that is deferred behind
	// another one of its key waits for no time of its own, and is left as it is: requeue the row
	// that it waits for ([Record.Deferral]). Rows that are stranded ([outbox.StateStranded]) are
	// claimable again. last_error stays until the next failure. A time to
	// live that has passed is taken off, and one that has not stays, unless [WithTTL] gives all
	// rows a new one. Rows that are malformed by their last_error are left out, as they would be
	// abandoned again, unless the filter names that class ([outbox.ClassMalformed]), for those that
	// were corrected in the table. A key that is blocked behind an abandoned row goes on when that
	// row is requeued and done; one that is blocked behind another row stays blocked.
	Requeue(ctx context.Context, filter Filter, limit int, opts ...RequeueOption) (int, error)
	// Replay makes published rows pending again, with a fresh budget of attempts. They are
	// delivered under the same message id. broker_message_id stays until the next delivery. A time
	// to live that has passed is taken off.
	Replay(ctx context.Context, filter Filter, limit int) (int, error)
	// Abandon abandons pending and failed rows, and processing ones whose lease is over. reason
	// goes into last_error, with the class "operator". Their keys go on, also where an abandoned
	// row would block them.
	Abandon(ctx context.Context, filter Filter, reason string, limit int) (int, error)
	// Matches counts the rows that a filter selects, of any status where it names none, up to
	// limit. Rows that a worker has claimed do not count; deferred rows do. An action changes no
	// more than those: Requeue leaves out pending rows that wait for no time of their own.
	Matches(ctx context.Context, filter Filter, limit int) (int, error)
	// Acknowledge marks abandoned rows as seen by an operator ([outbox.LastError.Acknowledged]), so that
	// they raise no alert any more. Keys that wait for them keep waiting.
	Acknowledge(ctx context.Context, filter Filter, limit int) (int, error)
	// Discard removes abandoned rows forever, whatever their age. Keys that wait for them go on.
	Discard(ctx context.Context, filter Filter, limit int) (int, error)
	// Unblock lets keys go on that wait for abandoned rows which the filter selects, without these rows,
	// and returns how many keys; of one with blocks in two priority classes, each counts.
	Unblock(ctx context.Context, filter Filter, limit int) (int, error)
	// UnblockKey lets a key go on that is blocked behind an abandoned row, without that row. ok is
	// false when it is not blocked.
	UnblockKey(ctx context.Context, broker, key string) (ok bool, err error)
	// BlockedKeys lists the keys that wait for an operator, oldest first, up to limit; of all
	// brokers where broker is empty.
	BlockedKeys(ctx context.Context, broker string, limit int) ([]BlockedKey, error)

	// Know says which brokers the configuration has. What tells of brokers tells of all of these
	// first, and of no more than [MaxStrangers] others: who may write rows can invent names. Before
	// Know, all are others. FinishedBrokers has all.
	Know(brokers ...string)

	// Overview tells where each broker stands, known to the configuration or not, sorted by name.
	// No count goes beyond limit.
	Overview(ctx context.Context, limit int) ([]BrokerOverview, error)
	// List returns rows of one broker in one status, newest first: the one that was written last,
	// or finished last where the status is terminal.
	List(ctx context.Context, request ListRequest) (List, error)
	// Message returns the rows of one message, one for each broker, sorted by broker, the first
	// MaxShownRows of them; none where there is no such message. The error says so where id is no UUID.
	Message(ctx context.Context, id string) ([]Record, error)
	// Event returns the rows of the event that a message is of: those of Message, and behind them those
	// that partners get of the same event under ids of their own (envelope.As), whichever of the ids is
	// given, MaxShownRows in all. The event's own id leads to all of them, another one as long as a row
	// with the event's own is there. On SQL Server it is Message, as no index finds the others there.
	Event(ctx context.Context, id string) ([]Record, error)
	// Find returns the rows that a term names, newest first, page by page. It is exact: a row that is not on a
	// page, and on no page after it, does not have the term. The error says so where the search took too long.
	Find(ctx context.Context, request FindRequest) (Found, error)
	// KeyBlocks lists the ordering keys of a broker that wait, by a block or by a row that has
	// failed: those that wait for an operator first, then those with the most followers. No more than
	// limit keys, and no count of followers beyond maxCount. It looks at 10,000 keys, and counts some
	// 50,000 followers; where there are more of either, the totals say so.
	KeyBlocks(ctx context.Context, broker string, limit, maxCount int) (KeyBlocks, error)
	// Stranded looks for open rows of a broker that no rule can ever make due ([outbox.StateStranded]):
	// rows with a lease or a schedule that never ends, and, page by page, deferred rows that no key
	// block brings back, of which limit are looked at, those with ids above after (zero = all). Next is
	// where the next page begins. Of the records, only ids, broker, status, state, type, key, shard and
	// the time at which they were written are set.
	Stranded(ctx context.Context, broker string, after Position, limit int) (List, error)
	// Counts returns one entry per broker that has rows, known to the configuration or not, sorted
	// by name, and behind them one with the sum of those that are not distinguished.
	Counts(ctx context.Context) ([]BrokerCounts, error)
	// Backlog lists the brokers of the configuration, where that is known, and those others that have
	// open rows, deferred ones included, sorted by name. It reads the heads of the shards only,
	// whatever the size of the table.
	Backlog(ctx context.Context) ([]Backlog, error)

	// BeginAudit records that an action begins, with the database's time, and returns the entry's
	// id. So what was begun and never ended, because the process died, can be seen.
	BeginAudit(ctx context.Context, entry AuditEntry) (id int64, err error)
	// EndAudit records how it ended: how many rows were changed, and the error, empty where there
	// was none. An entry that has ended stays as it is.
	EndAudit(ctx context.Context, id, rows int64, failure string) error
	// Audit lists entries, newest first, those before an id (0 = from the newest), up to limit.
	Audit(ctx context.Context, before int64, limit int) ([]AuditEntry, error)

	// Pause pauses a broker. changed is false when it was paused already: then the first pause
	// stays as it is.
	Pause(ctx context.Context, pause Pause) (changed bool, err error)
	// Resume ends a pause. changed is false when the broker was not paused. A store that is a
	// listener tells the relays.
	Resume(ctx context.Context, broker string) (changed bool, err error)
	// Pauses lists the paused brokers, by name.
	Pauses(ctx context.Context) ([]Pause, error)
	// Instances lists all of them, oldest first. Those not seen for a day are removed. A row that
	// cannot be read is listed as [Instance.Unreadable].
	Instances(ctx context.Context) ([]Instance, error)

	// FinishedBrokers lists the brokers that have finished rows, and those of the configuration.
	FinishedBrokers(ctx context.Context) ([]string, error)
	// Purge removes one batch and returns how many rows it removed. A row that has left the status
	// meanwhile stays, and so does an abandoned one for which a key waits (on_abandon: block),
	// until an operator has acted.
	Purge(ctx context.Context, request PurgeRequest) (int, error)
	// Exclusive runs f while no other process runs it on this table; ran is false when another one
	// does.
	Exclusive(ctx context.Context, name string, f func(context.Context) error) (ran bool, err error)

	// Migrate brings the schema up to date and returns the names of the steps that it applied, such
	// as "0001_outbox". It is idempotent and safe to run from several processes at once. Tables that
	// another tool made from the same steps are recorded, and their steps are returned with a note:
	// "0001_outbox is already there, recorded". Tables of which there is no record, and that are not
	// what the steps make, are a [*SchemaError]; nothing is changed then.
	Migrate(ctx context.Context) ([]string, error)
	// Check compares the live schema with what this version needs: steps, tables, columns, keys,
	// indexes and constraints, but not what expressions say. It ignores further objects. It needs
	// no right but to look at the catalog. The error is a [*SchemaError] that names each difference,
	// unless the database could not be asked, or is a read replica, on which nothing can be claimed.
	Check(ctx context.Context) error

	// Diagnose asks the database a few cheap questions. It needs no rights and works without the
	// tables, too. The error says that the database could not be asked.
	Diagnose(ctx context.Context) (Diagnosis, error)
}

// PurgeRequest asks for one bounded batch of a purge.
type PurgeRequest struct {
	// Status to remove: published or abandoned.
	Status outbox.Status
	// Retention is how long rows stay after they were finished, by the database's clock.
	Retention time.Duration
	// Limit is the most rows to remove.
	Limit int
	// Broker limits the purge to one broker's rows.
	Broker string
}

// BrokerCounts is the state of one broker's rows.
type BrokerCounts struct {
	Broker string
	Counts map[outbox.Status]int64
	// OldestPending is the age of the oldest row that is not finished; 0 when there is none.
	OldestPending time.Duration
	// LastError of the row that failed last among the unfinished and abandoned ones; empty when
	// there is none.
	LastError string
}
