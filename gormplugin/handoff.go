package gormplugin

import (
	"context"
	"database/sql"
	"slices"

	"github.com/gorm-fanout/fanout/internal/journal"
	"github.com/gorm-fanout/fanout/outbox"
)

// A Receiver delivers rows of transactions in this process without having to claim them; see
// [Plugin.HandOff].
type Receiver interface {
	// Reserve asks for capacity for rows that are about to be committed in one transaction; nil =
	// there is none. It must return at once. The rows do not change any more.
	Reserve(dialect outbox.Dialect, rows []outbox.Row) *outbox.Reservation
}

// receiver has an address, by which it is found again.
type receiver struct {
	Receiver
	pool *sql.DB
}

// HandOff registers a receiver of the rows committed on a pool, which is asked before they are
// inserted. Transactions on other pools, such as a resolver's, may write to another database and
// are not handed off. Rows that the receiver accepts are inserted as claimed and passed to it right
// after the commit; [Plugin.OnCommit] covers all others. The relay of the application's own process
// registers itself if the configuration has outbox.hand_off. Of several receivers the last one
// registered is asked. cancel removes the receiver.
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

// reserve asks for capacity for all rows of a flush. There is none in a foreign transaction (t is
// nil), for a flush of several rounds, and for one whose rows may exist already, from a commit of
// unknown outcome.
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

// others returns the wake-ups of brokers whose rows were not handed off.
func (t *tx) others(wakeUps []outbox.WakeUp) []outbox.WakeUp {
	if t.reserved == nil {
		return wakeUps
	}
	return slices.DeleteFunc(wakeUps, func(a outbox.WakeUp) bool { return t.reserved.Has(a.Broker) })
}
