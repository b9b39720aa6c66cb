package gormplugin

import (
	"context"
	"database/sql"
	"slices"

	"github.com/gorm-fanout/fanout/internal/journal"
	"github.com/gorm-fanout/fanout/outbox"
)

// A Receiver delivers rows of transactions in this process without having to claim them; see [Plugin.HandOff].
type Receiver interface {
	// Reserve asks for room for rows that are about to be inserted and committed in one transaction; nil = there is none. It must
	// return at once. The rows do not change any more.
	Reserve(dialect outbox.Dialect, rows []outbox.Row) *outbox.Reservation
}

// receiver has an address, by which it is found again.
type receiver struct {
	Receiver
	pool *sql.DB
}

// HandOff registers a receiver of what is committed on a pool, which is asked before the rows of a commit are inserted. Transactions on
// other pools, as a resolver has them, may write to another database, and ask nobody. What the receiver has room for is inserted as
// claimed, and goes to it straight after the commit; of the rest, and of everything that it refuses, [Plugin.OnCommit] tells. The
// relay in the application's own process registers itself where the configuration says outbox.hand_off. Of several
// the last one that was registered is asked. The function that is returned takes it back.
func (p *Plugin) HandOff(pool *sql.DB, to Receiver) (cancel func()) {
	added := &receiver{to, pool}
	p.changeReceivers(func(all []*receiver) []*receiver { return append(all, added) })
	return func() {
		p.changeReceivers(func(all []*receiver) []*receiver {
			return slices.DeleteFunc(all, func(r *receiver) bool { return r == added })
		})
	}
}

// changeReceivers changes the list, of which the last one is asked.
func (p *Plugin) changeReceivers(change func([]*receiver) []*receiver) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.receivers = change(p.receivers)
	var last *receiver
	if n := len(p.receivers); n > 0 {
		last = p.receivers[n-1]
	}
	p.receiver.Store(last)
}

// reserve asks for room for all rows of a flush; t is nil where another transaction is written in, which gets none. A flush that takes
// several rounds gets none, nor one of which some rows may be there already, from a transaction whose outcome is not known.
func (t *tx) reserve(rows []outbox.Row, flush []journal.Flush, first, last bool) *outbox.Reservation {
	if t == nil {
		return nil
	}
	to := t.plugin.receiver.Load()
	if to == nil || !first || !last || slices.ContainsFunc(flush, func(f journal.Flush) bool { return f.Unconfirmed() }) {
		return nil
	}
	if pool, err := t.GetDBConn(); err != nil || pool != to.pool {
		return nil
	}
	t.reserved = to.Reserve(t.inserter.Dialect(), rows)
	return t.reserved
}

// insertReserved inserts the rows of a transaction of which some have room at the receiver.
func (t *tx) insertReserved(ctx context.Context, db outbox.Execer, rows []outbox.Row) error {
	return t.inserter.InsertReserved(ctx, db, rows, t.reserved)
}

// others are the arrivals without those that the receiver knows of by itself.
func (t *tx) others(arrivals []outbox.Arrival) []outbox.Arrival {
	if t.reserved == nil {
		return arrivals
	}
	return slices.DeleteFunc(arrivals, func(a outbox.Arrival) bool { return t.reserved.Has(a.Broker) })
}
