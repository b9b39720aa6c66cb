package gormplugin

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/batch"
	"github.com/gorm-fanout/fanout/internal/journal"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
)

// write seals events, routes them and inserts their rows, one per event and broker. Where others
// are to be told, or a relay in this process wants to know, it returns what will be there for each
// broker. ours is the transaction whose commit writes, nil where another one is written in: then
// no error is reported.
func (p *Plugin) write(ctx context.Context, inserter *outbox.Inserter, db outbox.ExecQueryer, flush []journal.Flush, ours *tx) ([]wakeup.WakeUp, error) {
	if len(flush) == 0 {
		return nil, nil
	}
	var (
		wakeUps []wakeup.WakeUp
		brokers = 1 + len(p.routing.External)
		insert  = func(rows []outbox.Row) error { return inserter.Insert(ctx, db, rows) }
		told    = p.tells(ours)
	)
	if told {
		wakeUps = make([]wakeup.WakeUp, 0, brokers)
	}
	if slices.ContainsFunc(flush, func(f journal.Flush) bool { return f.Unconfirmed() }) {
		// Some may be there, from a transaction whose outcome is not known.
		insert = func(rows []outbox.Row) error { return inserter.InsertMissing(ctx, db, rows) }
	}
	appendRows := func(rows []outbox.Row, i int) ([]outbox.Row, error) { return p.appendRows(rows, &flush[i]) }
	write := func(rows []outbox.Row) error {
		if err := p.lockKeys(ctx, inserter, db, rows); err != nil {
			return err
		}
		if err := insert(rows); err != nil {
			return err
		}
		if told {
			wakeUps = inserter.WakeUps(wakeUps, rows)
		}
		return nil
	}
	err := batch.Write(len(flush), batch.Room[outbox.Row](len(flush), brokers), p.routing.SerializeKeys, appendRows, write)
	if err != nil {
		return nil, err
	}
	return wakeUps, nil
}

// tells reports whether relays or observers want to know what a transaction has written.
func (p *Plugin) tells(ours *tx) bool {
	return p.listeners.Len() > 0 || ours != nil && ours.notifier != nil
}

// appendRows seals one event and routes it.
func (p *Plugin) appendRows(rows []outbox.Row, f *journal.Flush) ([]outbox.Row, error) {
	var inherited envelope.Context
	if f.Context != nil {
		inherited = *f.Context
	}
	if inherited.CorrelationID == "" {
		inherited.CorrelationID = f.CorrelationID
	}
	before := len(rows)
	message, err := p.events.Seal(f.Event, f.Source, inherited)
	if err == nil {
		err = p.unsetID(f)
	}
	if err == nil {
		rows, err = p.routing.AppendRows(rows, message)
	}
	if err != nil {
		return nil, &CaptureError{Event: fmt.Sprintf("%T", f.Data), Aggregate: f.Source.Aggregate, Err: err}
	}
	if len(rows) > before {
		p.warnOfClasses(f, &rows[before])
	}
	return rows, nil
}

// writeNow writes rows at the statement, in a transaction that belongs to the caller. The events
// stay pending.
func (p *Plugin) writeNow(db *gorm.DB, conn gorm.Tx, flush []journal.Flush) error {
	inserter, err := p.inserterFor(db)
	if err != nil {
		return err
	}
	for i := range flush {
		flush[i].SetUnconfirmed()
	}
	tx, _ := conn.(*sql.Tx)
	correlation := journal.Correlate(flush, p.outcomes.correlation(tx), true)
	_, err = p.write(db.Statement.Context, inserter, conn, flush, nil)
	p.watchForeign(db, conn, inserter, flush, correlation)
	return err
}

// lockKeys makes the writers of one ordering key take turns, where the routing asks for it. It
// comes right before the insert, so that a key is held for no longer than the insert and the commit
// take.
func (p *Plugin) lockKeys(ctx context.Context, inserter *outbox.Inserter, db outbox.Execer, rows []outbox.Row) error {
	if !p.routing.SerializeKeys {
		return nil
	}
	return inserter.LockKeys(ctx, db, rows)
}
