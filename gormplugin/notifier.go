package gormplugin

import (
	"database/sql"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
)

// notifierOf returns the notifier of a pool. If inner is a single connection, on which a
// notification could end up in a transaction, it returns that of the handle the plugin was
// installed on. It is nil if no one is to be notified.
func (p *Plugin) notifierOf(inner gorm.ConnPool, inserter *outbox.Inserter) *wakeup.Notifier {
	if !p.routing.Notify || inserter.Dialect() != outbox.Postgres {
		return nil
	}
	db, ok := inner.(*sql.DB)
	if connector, connects := inner.(gorm.GetDBConnector); !ok && connects {
		db, _ = connector.GetDBConn()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if db == nil {
		return p.notifier
	}
	if n := p.notifiers[db]; n != nil {
		return n
	}
	n := wakeup.NewNotifier(db, inserter.Table(), p.log)
	if p.notifiers == nil {
		p.notifiers, p.notifier = map[*sql.DB]*wakeup.Notifier{}, n
	}
	p.notifiers[db] = n
	return n
}

// committed wakes the relay of this process, or those of others if it does not deliver these rows.
func (p *Plugin) committed(wakeUps []wakeup.WakeUp, others *wakeup.Notifier) {
	if !p.listeners.Notify(wakeUps) && others != nil {
		others.Wake(wakeUps)
	}
}
