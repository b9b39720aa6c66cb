package outbox

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// Rows can be handed off: a transaction of this process inserts them as claimed already, and after
// its commit they go to the processor as they stand in memory. That saves the claim. What makes it
// safe is said in docs/protocol.md; the parts are
//
//   - a Reservation, made before the INSERT, which is refused for the least reason;
//   - a verification, read after the commit and before the publish: the row is there, still ours, and the first of its key;
//   - the lease, after which rows that were lost on the way are claimed as any others.

// A Reservation is room in the queues of this process's processors for rows of one transaction: all
// of its rows for a broker, or none of them. It belongs to the goroutine that commits, and must end
// by Commit or Cancel. The methods do nothing on nil.
type Reservation struct {
	rows   []Row
	places []Place
	ended  bool
}

// A Place is the part of a reservation at one processor, which makes it.
type Place struct {
	// Broker whose rows have room there.
	Broker string
	// Token, Worker and Lease are those under which the rows are inserted. The lease is counted
	// from the INSERT on.
	Token  uuid.UUID
	Worker string
	Lease  time.Duration
	// End hears how the transaction ended.
	End PlaceEnder
}

// A PlaceEnder hears of the end of a reservation: the rows of its broker have been committed, which
// is known, or have not, or nobody knows.
type PlaceEnder interface {
	EndPlace(rows []Row, committed bool)
}

// NewReservation is a reservation of these places for these rows, which must not change any more.
func NewReservation(rows []Row, places []Place) *Reservation {
	return &Reservation{rows: rows, places: places}
}

// Has reports whether the rows of a broker have room.
func (r *Reservation) Has(broker string) bool { return r.place(broker) != nil }

func (r *Reservation) place(broker string) *Place {
	if r == nil {
		return nil
	}
	for i := range r.places {
		if r.places[i].Broker == broker {
			return &r.places[i]
		}
	}
	return nil
}

// Commit hands the rows over: their transaction has been committed, and that is known. The slice of
// the reservation and the payloads must not be changed any more.
func (r *Reservation) Commit() { r.end(true) }

// Cancel gives the room back: the transaction was rolled back, or its outcome is not known. After
// Commit it does nothing.
func (r *Reservation) Cancel() { r.end(false) }

func (r *Reservation) end(committed bool) {
	if r == nil || r.ended {
		return
	}
	r.ended = true
	for i := range r.places {
		r.places[i].End.EndPlace(r.rows, committed)
	}
}

// claimedColumns are filled, beside insertColumns, where some of the rows are born claimed.
var claimedColumns = [...]string{"status", "lock_token", "locked_by", "locked_until"}

// InsertReserved is Insert for rows of which some have room at a processor of this process: those
// are claimed from the moment on in which they become visible. The lease runs by the database's
// clock at the insert, not from the transaction's start.
func (i *Inserter) InsertReserved(ctx context.Context, db Execer, rows []Row, reservation *Reservation) error {
	if reservation == nil {
		return i.Insert(ctx, db, rows)
	}
	if err := i.check(rows); err != nil {
		return err
	}
	const columns = len(insertColumns) + len(claimedColumns)
	for len(rows) > 0 {
		n := min(len(rows), i.dialect.rowsPerInsert()*len(insertColumns)/columns)
		text, ok := i.claimed.Load(n)
		if !ok {
			text, _ = i.claimed.LoadOrStore(n, i.insertClaimedSQL(n))
		}
		args := make([]any, 0, n*columns)
		for r := range rows[:n] {
			args = i.dialect.rowArgs(args, &rows[r])
			args = i.dialect.claimedArgs(args, reservation.place(rows[r].TargetBroker))
		}
		if err := i.exec(ctx, db, n, text.(string), args); err != nil { //nolint:forcetypeassert // the map holds nothing else
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// claimedArgs appends the values of claimedColumns for a row that has room at p, or none.
func (d Dialect) claimedArgs(args []any, p *Place) []any {
	if p == nil {
		return append(args, string(StatusPending), nil, nil, nil)
	}
	var lease any
	switch d {
	case SQLite: // whose clock is ours
		lease = time.Now().Add(p.Lease).UnixMicro()
	case SQLServer:
		lease = int64((p.Lease + time.Second - 1) / time.Second) // never less than the process counts on
	default:
		lease = p.Lease.Microseconds()
	}
	return append(args, string(StatusProcessing), d.uuidArg(p.Token), p.Worker, lease)
}

// insertClaimedSQL is insertSQL with claimedColumns.
func (i *Inserter) insertClaimedSQL(rows int) string {
	dst := append([]byte("INSERT INTO "), i.table...)
	dst = appendColumns(append(dst, " ("...), "")
	for _, name := range claimedColumns {
		dst = append(append(dst, ", "...), name...)
	}
	dst = append(dst, ") VALUES "...)
	bound := 0
	bind := func() {
		bound++
		dst = i.dialect.placeholder(dst, bound)
	}
	for r := range rows {
		if r > 0 {
			dst = append(dst, ", "...)
		}
		dst = append(dst, '(')
		for range len(insertColumns) + len(claimedColumns) - 1 {
			bind()
			dst = append(dst, ", "...)
		}
		before, after := i.dialect.leaseSQL()
		dst = append(dst, before...)
		bind()
		dst = append(append(dst, after...), ')')
	}
	return string(dst)
}

// leaseSQL is what stands around the parameter of a lease to make its end. A parameter that is NULL
// makes NULL.
func (d Dialect) leaseSQL() (before, after string) {
	switch d {
	case SQLite:
		return "", ""
	case SQLServer:
		return "DATEADD(second, CONVERT(int, ", "), SYSUTCDATETIME())"
	default:
		return "clock_timestamp() + ", "::bigint * interval '1 microsecond'"
	}
}
