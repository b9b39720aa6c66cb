package outbox

import (
	"context"
	"time"
)

// claimedColumns are filled, beside insertColumns, where some of the rows are born claimed.
var claimedColumns = [...]string{"status", "lock_token", "locked_by", "locked_until"}

// InsertReserved is Insert for rows of which some have room at a processor of this process: those are claimed from the moment on
// in which they become visible. The lease runs by the database's clock at the insert, not from the transaction's start.
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
func (d Dialect) claimedArgs(args []any, p *place) []any {
	if p == nil {
		return append(args, string(StatusPending), nil, nil, nil)
	}
	var lease any
	switch d {
	case SQLite: // whose clock is ours
		lease = time.Now().Add(p.at.p.policy.Lease).UnixMicro()
	case SQLServer:
		lease = int64((p.at.p.policy.Lease + time.Second - 1) / time.Second) // never less than the process counts on
	default:
		lease = p.at.p.policy.Lease.Microseconds()
	}
	return append(args, string(StatusProcessing), d.uuidArg(p.at.token), p.at.worker.name, lease)
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

// leaseSQL is what stands around the parameter of a lease to make its end. A parameter that is NULL makes NULL.
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
