package gormplugin

import (
	"context"
	"fmt"
	"slices"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// rows seals events and routes them: one row per event and broker.
func (p *Plugin) rows(flush []uow.Flush) ([]outbox.Row, error) {
	if len(flush) == 0 {
		return nil, nil
	}
	rows := make([]outbox.Row, 0, len(flush)*(1+len(p.routing.External)))
	for i := range flush {
		f := &flush[i]
		message, err := p.events.Seal(f.Event, f.Source, f.Context)
		if err == nil {
			rows, err = p.routing.AppendRows(rows, message)
		}
		if err != nil {
			return nil, &CaptureError{Event: fmt.Sprintf("%T", f.Data), Aggregate: f.Source.Aggregate, Err: err}
		}
	}
	return rows, nil
}

// insert writes the rows. Where an event was written before in a transaction whose outcome is not known, its rows may be
// there already.
func (p *Plugin) insert(ctx context.Context, inserter *outbox.Inserter, db outbox.Execer, flush []uow.Flush, rows []outbox.Row) error {
	if len(rows) == 0 {
		return nil
	}
	if err := p.lockKeys(ctx, inserter, db, rows); err != nil {
		return err
	}
	if slices.ContainsFunc(flush, func(f uow.Flush) bool { return f.Unconfirmed() }) {
		return inserter.InsertMissing(ctx, db, rows)
	}
	return inserter.Insert(ctx, db, rows)
}

// writeNow writes rows at the statement, in a transaction that belongs to the caller. The events stay pending.
func (p *Plugin) writeNow(db *gorm.DB, conn outbox.Execer, flush []uow.Flush) error {
	rows, err := p.rows(flush)
	if err != nil || len(rows) == 0 {
		return err
	}
	inserter, err := p.inserterFor(db)
	if err != nil {
		return err
	}
	if err := p.lockKeys(db.Statement.Context, inserter, conn, rows); err != nil {
		return err
	}
	for i := range flush {
		flush[i].SetUnconfirmed()
	}
	return inserter.InsertMissing(db.Statement.Context, conn, rows)
}

// lockKeys makes the writers of one ordering key take turns, where the routing asks for it. It comes right before the insert,
// so that a key is held for no longer than the insert and the commit take.
func (p *Plugin) lockKeys(ctx context.Context, inserter *outbox.Inserter, db outbox.Execer, rows []outbox.Row) error {
	if !p.routing.SerializeKeys {
		return nil
	}
	return inserter.LockKeys(ctx, db, rows)
}

// brokersOf lists the target brokers of rows, each once.
func brokersOf(rows []outbox.Row) []string {
	var names []string
	for i := range rows {
		if !slices.Contains(names, rows[i].TargetBroker) {
			names = append(names, rows[i].TargetBroker)
		}
	}
	return names
}
