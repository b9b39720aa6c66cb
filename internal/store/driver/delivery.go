package driver

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// A Delivery is the outbox table of one database, as a relay uses it. Every method takes time from
// the database's clock alone, and is safe for concurrent use by any number of goroutines and
// processes.
//
// The rules that an implementation keeps (package storetest checks them):
//
//   - A claim never returns more than its limits, of rows and of bytes, and no row is in the hands of two unexpired claims.
//   - What a claim takes is, for each ordering key, a gap-free prefix of the key's open rows in its shard, in the order of
//     their ids; a key of which a row in the shard is leased to another relay gives nothing.
//   - Completing and renewing change only rows that still carry the token of their claim.
type Delivery interface { //nolint:interfacebloat // all that a relay asks of a table
	// Exchange completes an earlier claim and makes a new one, in one round trip where the database
	// allows it. Either part may be nil. The completion is durable on its own: it stands even when
	// the claim fails, and then Exchange returns the error beside a non-nil Exchanged.Completed. An
	// error with a nil Completed leaves the outcome of the completion unknown; repeating it is
	// safe. Where another session has locked a row of the completion it is [ErrLocked], soon.
	Exchange(ctx context.Context, completion *Completion, claim *Claim) (Exchanged, error)

	// Renew extends the lease of a claim from now on and returns the number of rows that still
	// belong to it.
	Renew(ctx context.Context, lease Lease) (int, error)

	// Ready tells which shards of a broker have work: a row is ready to be claimed, a block is due
	// or done, or waiting rows fill the head of the shard; or that the broker is paused. It takes
	// no lock. The shards of busy are those of which the caller knows already that they have work,
	// or will ask again; Ready may leave them out, which spares it the rows that are claimed there.
	Ready(ctx context.Context, broker string, busy wakeup.Set) (Readiness, error)

	// Defer looks at the first rows of a shard, no more than the claim's Window, and takes out of
	// the way of claims what has to wait there for its time: rows in backoff, and with them the
	// followers of their key. Deferred rows come back by claims with Wake.
	// It returns the number of rows deferred. Of the claim, Broker, Shard, Window and Unordered
	// count.
	Defer(ctx context.Context, claim *Claim) (int, error)

	// Alone reports whether no other row of a broker is open beside one, claimed and deferred rows
	// included; of those for its stream, where stream is not empty. It looks at a bounded number of
	// rows, and is false where the broker has more. It takes no lock.
	Alone(ctx context.Context, broker, stream string, id int64) (bool, error)

	// Holder tells who has kept a shard from being claimed from for longer than a claim takes. On
	// PostgreSQL a session that has fallen silent in the middle of that is ended, so that the shard
	// becomes free.
	Holder(ctx context.Context, broker string, shard int) (Holder, error)

	// Shards is the number of shards that this store uses for each [outbox.Class]; at least 1.
	// Shards are numbered class by class: shard n of a class is int(class)*Shards() + n. The same n
	// holds the same ordering keys in every class.
	Shards() int

	// Backlog lists the brokers of the configuration, where that is known, and those others that have
	// open rows, deferred ones included, sorted by name. It reads the heads of the shards only,
	// whatever the size of the table.
	Backlog(ctx context.Context) ([]admin.Backlog, error)

	// Stranded looks for open rows of a broker that no rule can ever make due, page by page; see
	// [admin.Administration].
	Stranded(ctx context.Context, broker string, after admin.Position, limit int) (admin.List, error)

	// Pauses lists the paused brokers, by name.
	Pauses(ctx context.Context) ([]admin.Pause, error)

	// Heartbeat enters an instance, or says that it is still there and on what it works.
	Heartbeat(ctx context.Context, instance admin.Instance) error
	// Leave removes an instance that stops.
	Leave(ctx context.Context, id uuid.UUID) error

	// Diagnose asks the database a few cheap questions. It needs no rights and works without the
	// tables, too. The error says that the database could not be asked.
	Diagnose(ctx context.Context) (admin.Diagnosis, error)
	// Watch asks the database a cheap question or two and returns what comes and goes, such as a
	// transaction that has been open for so long that dead rows pile up. The text of a finding
	// stays the same for as long as it lasts. It is safe for concurrent use. The error says that
	// the database could not be asked.
	Watch(ctx context.Context) ([]admin.Finding, error)

	// Close releases the store's own connections. It waits for none of the processors.
	Close() error
}

// A Claim asks for rows.
type Claim struct {
	// Broker whose rows are asked for.
	Broker string
	// Shard to claim from, 0 to Classes*Shards()-1.
	Shard int
	// Limit is the most rows to claim, at least 1.
	Limit int
	// Bytes is the most that the payloads and headers of the claimed rows may have together, as the
	// database stores them; 0 = no bound. The first row is taken whatever it has. What is cut off are
	// the last of the rows that would have been claimed, so that each key keeps a gap-free prefix.
	Bytes int
	// MaxPayload is the most bytes of a payload that is read: of a row that has more, the message has
	// none, and Unread. 0 = no bound.
	MaxPayload int
	// Window is how many open rows at the head of the shard are looked at, held ones included; at
	// least Limit.
	Window int
	// Ahead has the claim pass over what cannot go at the head of the shard, as many open rows as
	// this: what waits, what is behind it of its key, and what is claimed. It takes what a claim with
	// such a window would take first, from rows that are so near to each other as those of the
	// largest window. It reads them all, and is for a head that is full of rows that wait; it wakes
	// nothing, and Batch.Seen is what could go. 0 = it looks at Window. Where order is off a claim
	// passes over what waits in any case. A store may not be able to, and look at Window rows.
	Ahead int
	// PerKey is the most rows to claim of one ordering key, for brokers that send the messages of a key in
	// turn; 0 = no bound. A claim that looks ahead passes over what is beyond it, and over all of the
	// first key that can go: a claim of the head takes that.
	PerKey int
	// Lease is how long the rows belong to this claim, by the database's clock.
	Lease time.Duration
	// Worker names the claimer, for people: host, process and worker.
	Worker string
	// Unordered switches ordering keys off.
	Unordered bool
	// Wake first brings back a bounded number of rows of the shard: deferred and scheduled ones whose
	// time has come, and the followers of those that are done. It is needed while Batch.Blocked is true.
	Wake bool
	// AroundLocked looks first which rows of the window other sessions have locked: these, and what is
	// behind them of their keys, are not claimed, so that no claim waits for them. It costs more than a
	// claim of free rows, and is for shards of which the last batch had Locked rows. Where order is
	// off, locked rows are passed over in any case.
	AroundLocked bool
	// Shared is true while other workers of the process may have claimed rows. Should the process
	// die, a row that came alone is then not charged an attempt: it may not have been its fault.
	Shared bool
}

// Admits is how many scheduled rows a claim that wakes brings in at most. The other half of its limit is
// left to rows that wait already: scheduled rows have the lower ids, and would be in front of all others.
func (c *Claim) Admits() int { return max(1, c.Limit/2) }

// Bound is a number of bytes of a [Claim] for statements: without a bound, more than there can be.
func Bound(bytes int) int64 {
	if bytes == 0 {
		return math.MaxInt64
	}
	return int64(bytes)
}

// A Lease is what is needed to extend or complete a claim: the token alone decides; broker, shard
// and id range make it an index range scan.
type Lease struct {
	Broker   string
	Shard    int
	Token    uuid.UUID
	FirstID  int64
	LastID   int64
	Duration time.Duration
}

// A Batch is the result of one claim.
type Batch struct {
	// Lease by which the batch is renewed and completed.
	Lease Lease
	// Messages in the order of their ids.
	Messages []Message
	// Seen is how many open rows the window held. Seen = Window with few messages means that held
	// rows fill the window. Where order is off it counts only what was ready.
	Seen int
	// Waiting is how many rows wait at the head of the shard for a time, or behind a row of their
	// key that does: [Delivery.Defer] would take them away. Where order is off it is counted
	// only when the batch is not full.
	Waiting int
	// Cut is true when Claim.Bytes kept back rows that would have been claimed: a batch of few rows
	// is full then.
	Cut bool
	// Blocked is true when the broker has deferred rows, or the shard scheduled rows whose time has come.
	Blocked bool
	// Locked is how many rows of the window other sessions have locked, which keeps them and what is
	// behind them of their keys from being claimed; LockedBy is which session that is for the first
	// of them, for people, "" where the database does not tell.
	Locked   int
	LockedBy string
	// Busy is true when another worker was claiming from the shard at this moment; nothing was
	// claimed.
	Busy bool
}

// Exchanged is the result of Exchange.
type Exchanged struct {
	// Completed is nil when nothing was to be completed or the completion failed.
	Completed *Completed
	// Batch is empty when nothing was asked for or nothing is ready.
	Batch Batch
}

// ErrLocked is the error of a completion of which another session has locked a row: nothing of it was
// written, and the rest can be by itself.
var ErrLocked = errors.New("outbox: another session has locked a row")

// Completed tells what became of a completion.
type Completed struct {
	// Lost is the number of rows that no longer carried the claim's token: their lease had run out
	// and another process owns or has finished them. They were not changed.
	Lost int
}

// Blocks reports whether the key of an abandoned row is to wait until an operator acts.
func (s *Completion) Blocks(o *Outcome) bool {
	return s.BlockAbandoned && o.Status == outbox.StatusAbandoned && !o.KeyGoesOn
}

// A Completion writes the outcomes of one claim.
type Completion struct {
	Lease Lease
	// Published rows become published, or go, as DeletePublished says.
	Published []Delivered
	// DeletePublished removes Published from the table, in place of marking them.
	DeletePublished bool
	// Other rows are retried, abandoned or released.
	Other []Outcome
	// BlockAbandoned makes the key of an abandoned row wait until an operator requeues the row or
	// lets the key go on, unless its outcome says otherwise.
	BlockAbandoned bool
}

// Delivered is one row that its broker has confirmed.
type Delivered struct {
	ID              int64
	BrokerMessageID string // empty = NULL
}

// An Outcome is what becomes of one claimed row that was not delivered.
type Outcome struct {
	ID int64
	// Status is failed (retry after Delay), abandoned, or pending (released, attempts unchanged).
	Status outbox.Status
	// Delay until the row can be claimed again; 0 = at once.
	Delay time.Duration
	// Spent is true when the attempt counts.
	Spent bool
	// LastError is the JSON that goes into last_error; empty leaves the column as it is.
	LastError string
	// KeyGoesOn lets the key of an abandoned row go on although BlockAbandoned is set.
	KeyGoesOn bool
	// Attempts that are spent, this one included where it counts, for an [relay.Observer]. Stores
	// need not look at it.
	Attempts int
}

// A Holder has a shard for long.
type Holder struct {
	// Session says which it is, for people; "" where there is none.
	Session string
	// Ended is true where that session was ended.
	Ended bool
}

// When a [Holder] is one.
const (
	// HeldLong is how long a session has a shard before it is reported.
	HeldLong = 5 * time.Second
	// HeldSilently is how long a session that has a shard may be silent in the middle of a transaction
	// before it is ended, where the database can.
	HeldSilently = 15 * time.Second
)
