package gormplugin

import (
	"context"
	"database/sql"
	"log/slog"
	"strings"
	"sync"
	"time"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/internal/failure"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
)

const (
	// notifyGap and notifyLongestGap bound the interval between notifications; commits within it
	// share one. The first after a pause is sent at once. The gap grows under load, which costs
	// relays no latency: they have rows to deliver then.
	notifyGap        = time.Millisecond
	notifyLongestGap = 8 * time.Millisecond
	// notifyTime bounds one notification, the wait for a connection included.
	notifyTime = 2 * time.Second
	// notifyRest and notifyLongestRest bound the delay after a failure.
	notifyRest        = time.Second
	notifyLongestRest = time.Minute
)

// notifier wakes relays in other processes: after the commit, on another connection of the same
// pool, one notification at a time, so that a pool that is used up has one more waiter and no
// commit waits. Its goroutine lives while there is something to send. Polling finds what it cannot
// send.
type notifier struct {
	db       outbox.Execer
	inserter *outbox.Inserter
	log      *slog.Logger

	mu      sync.Mutex
	waiting []wakeup.WakeUp
	busy    bool      // the goroutine lives
	next    time.Time // no notification before
	gap     time.Duration
	rest    time.Duration // 0 unless the last notification failed
	failing failure.Standing
}

// wake never blocks. It copies what it needs of wakeUps.
func (n *notifier) wake(wakeUps []wakeup.WakeUp) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.rest > 0 && time.Now().Before(n.next) {
		return
	}
	n.waiting = wakeup.Merge(n.waiting, wakeUps...)
	if !n.busy {
		n.busy = true
		go n.work()
	}
}

// work sends notifications until nothing is waiting.
func (n *notifier) work() {
	var sent []wakeup.WakeUp
	for {
		n.mu.Lock()
		pause := time.Until(n.next)
		if len(n.waiting) == 0 {
			n.busy = false
			n.mu.Unlock()
			return
		}
		if pause <= 0 {
			sent, n.waiting = n.waiting, sent[:0]
			n.gap = n.gapAfter(time.Now())
			n.next = time.Now().Add(n.gap)
		}
		n.mu.Unlock()
		if pause > 0 {
			time.Sleep(pause) // what is added meanwhile is sent along
			continue
		}
		n.record(n.send(sent))
	}
}

// gapAfter doubles the gap while notifications follow each other closely, however long each takes.
func (n *notifier) gapAfter(now time.Time) time.Duration {
	if n.gap == 0 || now.Sub(n.next) >= n.gap {
		return notifyGap
	}
	return min(2*n.gap, notifyLongestGap)
}

func (n *notifier) send(wakeUps []wakeup.WakeUp) error {
	ctx, cancel := context.WithTimeout(context.Background(), notifyTime) // no caller waits for it
	defer cancel()
	return wakeup.Notify(ctx, n.db, n.inserter.Table(), wakeUps)
}

// record notes the outcome of a notification, and logs what is news.
func (n *notifier) record(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil {
		n.rest = 0
		if now := time.Now(); now.After(n.next) { // it took longer than the gap, which starts only now
			n.next = now
		}
		if _, was := n.failing.Works(); was {
			n.log.Info("relays notified again")
		}
		return
	}
	n.rest = min(max(2*n.rest, notifyRest), notifyLongestRest)
	if !closed(err) && n.failing.Failed(err) {
		n.log.Warn("relays not notified: they find rows by polling", "error", err)
	}
	n.waiting = n.waiting[:0]
	n.next = time.Now().Add(n.rest)
}

// closed reports whether the application has closed the pool, as it does when it ends. database/sql
// does not export that error.
func closed(err error) bool { return strings.HasSuffix(err.Error(), "sql: database is closed") }

// notifierOf returns the notifier of a pool. If inner is a single connection, on which a
// notification could end up in a transaction, it returns that of the handle the plugin was
// installed on. It is nil if no one is to be notified.
func (p *Plugin) notifierOf(inner gorm.ConnPool, inserter *outbox.Inserter) *notifier {
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
	n := &notifier{db: db, inserter: inserter, log: p.log}
	if p.notifiers == nil {
		p.notifiers, p.notifier = map[*sql.DB]*notifier{}, n
	}
	p.notifiers[db] = n
	return n
}

// committed wakes the relay of this process, or those of others if it does not deliver these rows.
func (p *Plugin) committed(wakeUps []wakeup.WakeUp, others *notifier) {
	if !p.notify(wakeUps) && others != nil {
		others.wake(wakeUps)
	}
}
