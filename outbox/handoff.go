package outbox

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// Rows can be handed off: a transaction of this process inserts them as claimed already, and after its commit they go to the
// processor as they stand in memory. That saves the claim. What makes it safe is said in docs/protocol.md; the parts are
//
//   - a Reservation, made before the INSERT, which is refused for the least reason;
//   - a Verification, read after the commit and before the publish: the row is there, still ours, and the first of its key;
//   - the lease, which brings back what was lost on the way.

// A Reservation is room in the queues of this process's processors for rows of one transaction: all of its rows for a broker, or
// none of them. It belongs to the goroutine that commits, and must end by Commit or Cancel. The methods do nothing on nil.
type Reservation struct {
	rows   []Row
	places []place
	ended  bool
}

// place is the part of a reservation at one processor.
type place struct {
	at      *receiver
	dialect Dialect
	asked   time.Time   // from before the INSERT on the lease is counted
	shards  [Shards]int // rows in each shard
	rows    int
}

// Has reports whether the rows of a broker have room.
func (r *Reservation) Has(broker string) bool { return r.place(broker) != nil }

func (r *Reservation) place(broker string) *place {
	if r == nil {
		return nil
	}
	for i := range r.places {
		if r.places[i].at.p.broker == broker {
			return &r.places[i]
		}
	}
	return nil
}

// Commit hands the rows over: their transaction has been committed, and that is known. The slice that was given to Reserve and the
// payloads must not be changed any more.
func (r *Reservation) Commit() { r.end(true) }

// Cancel gives the room back: the transaction was rolled back, or its outcome is not known. After Commit it does nothing.
func (r *Reservation) Cancel() { r.end(false) }

func (r *Reservation) end(committed bool) {
	if r == nil || r.ended {
		return
	}
	r.ended = true
	for i := range r.places {
		r.places[i].at.complete(&r.places[i], r.rows, committed)
	}
}

// A Verifier is a Store that can tell which of the rows that were born claimed may be published.
type Verifier interface {
	// Verify looks at rows of which this process has copies. It reads in one snapshot, taken after the call, everything that was
	// committed before, and takes no lock that claims wait for. Of the rows that are still in processing under the token it
	// returns one entry each; the others have gone. A row is clear when
	//
	//   - the broker is not paused, the lease has not run out, and the row is in the shard that was asked about;
	//   - and, unless Unordered or without an ordering key: no other open row of its key stands before it, in whatever shard,
	//     but for those that are clear, too; no block holds the key back; and no more than Backlog other open rows stand in the
	//     shard before the last one of the returned.
	Verify(ctx context.Context, verification *Verification) ([]HandedRow, error)
}

// A Verification asks about rows of one shard.
type Verification struct {
	Broker string
	// Shard of all these rows, of ClassNormal.
	Shard int
	// Token under which the rows were inserted.
	Token uuid.UUID
	// MessageIDs of the rows.
	MessageIDs []uuid.UUID
	// Unordered switches ordering keys off.
	Unordered bool
	// Backlog is how many other open rows may stand before them.
	Backlog int
}

// A HandedRow is what the database says about a row that is still ours.
type HandedRow struct {
	ID                int64
	MessageID         uuid.UUID
	Shard             int
	Attempts, Crashes int
	CreatedAt         time.Time
	// Expired as in Message.
	Expired bool
	// Clear is true when the row may be published now.
	Clear bool
}

// HandOffStats count rows that were considered for a hand-off, where it is switched on.
type HandOffStats struct {
	// Sent were handed off and verified. What became of them is in the other counters of Stats.
	Sent int64
	// Unfit rows were written as ever: for a time or with a priority, or the broker was paused or unavailable, or its rate used up.
	Unfit int64
	// Busy rows were written as ever because their shard had work already.
	Busy int64
	// Full rows were written as ever because there was no room.
	Full int64
	// Behind rows were given back to the database after the commit: an earlier row of their key was open, or many of their shard; or
	// the broker had been paused, which this processor did not know yet.
	Behind int64
	// Withdrawn rows were given back after the commit: by a pause, an outage, a shutdown, or because it had become late.
	Withdrawn int64
	// Gone rows were not there any more, or in other hands.
	Gone int64
}

// Reserve asks the processors of a database for room for rows that are about to be inserted, with one statement or more, and
// committed in one transaction. It returns nil where no row has room. It waits for nothing. The rows must not change any more.
func (e *Engine) Reserve(database string, dialect Dialect, rows []Row) *Reservation {
	var reservation *Reservation
	for _, processor := range e.processors {
		if processor.database != database || processor.receiver == nil {
			continue
		}
		p, ok := processor.receiver.reserve(dialect, rows)
		if !ok {
			continue
		}
		if reservation == nil {
			reservation = &Reservation{rows: rows, places: make([]place, 0, len(e.processors))}
		}
		reservation.places = append(reservation.places, p)
	}
	return reservation
}

// HandsOff reports whether a processor of the database takes rows by hand-off.
func (e *Engine) HandsOff(database string) bool {
	for _, processor := range e.processors {
		if processor.database == database && processor.receiver != nil {
			return true
		}
	}
	return false
}
