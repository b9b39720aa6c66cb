package gormplugin

import (
	"context"
	"database/sql"
	"log/slog"
	"strings"
	"sync"
	"time"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/outbox"
)

const (
	// announceGap and announceLongestGap bound the time between the beginnings of two announcements: what commits within it is told in
	// one. The first after a pause is sent at once; the gap grows while there is always something to tell, which costs whoever is told
	// nothing, since he has work then.
	announceGap        = time.Millisecond
	announceLongestGap = 8 * time.Millisecond
	// announceTime bounds one, the wait for a connection included.
	announceTime = 2 * time.Second
	// announceRest and announceLongestRest bound how long none is tried after one that failed.
	announceRest        = time.Second
	announceLongestRest = time.Minute
)

// announcer tells relays in other processes of rows that were committed: after the commit, on another connection of the same pool, and
// one announcement at a time, so that a pool that is used up has one more to wait in it and no commit waits for anything. Its goroutine
// lives while there is something to tell. What it cannot tell, polling finds.
type announcer struct {
	db       outbox.Execer
	inserter *outbox.Inserter
	log      *slog.Logger

	mu      sync.Mutex
	waiting []outbox.Arrival
	busy    bool      // the goroutine lives
	next    time.Time // no announcement before
	gap     time.Duration
	rest    time.Duration
}

// tell never blocks. It copies what it needs of arrivals.
func (a *announcer) tell(arrivals []outbox.Arrival) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rest > 0 && time.Now().Before(a.next) {
		return // it has just failed
	}
	a.waiting = outbox.MergeArrivals(a.waiting, arrivals...)
	if !a.busy {
		a.busy = true
		go a.work()
	}
}

// work announces what is waiting, until there is nothing.
func (a *announcer) work() {
	var told []outbox.Arrival
	for {
		a.mu.Lock()
		pause := time.Until(a.next)
		if len(a.waiting) == 0 {
			a.busy = false
			a.mu.Unlock()
			return
		}
		if pause <= 0 {
			told, a.waiting = a.waiting, told[:0]
			a.gap = a.gapAfter(time.Now())
			a.next = time.Now().Add(a.gap)
		}
		a.mu.Unlock()
		if pause > 0 {
			time.Sleep(pause) // what comes meanwhile goes along
			continue
		}
		a.settle(a.announce(told))
	}
}

// gapAfter is the gap that follows an announcement: a longer one while they follow each other closely, however long each takes.
func (a *announcer) gapAfter(now time.Time) time.Duration {
	if a.gap == 0 || now.Sub(a.next) >= a.gap {
		return announceGap
	}
	return min(2*a.gap, announceLongestGap)
}

func (a *announcer) announce(arrivals []outbox.Arrival) error {
	ctx, cancel := context.WithTimeout(context.Background(), announceTime) // no caller waits for it
	defer cancel()
	return a.inserter.Announce(ctx, a.db, arrivals)
}

// settle notes how an announcement ended, and says so when that is news.
func (a *announcer) settle(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	failed := a.rest > 0
	switch {
	case err == nil:
		a.rest = 0
		if now := time.Now(); now.After(a.next) { // it took longer than the gap: a pause begins now, if one does
			a.next = now
		}
		if failed {
			a.log.Info("relays in other processes are told of new rows again")
		}
		return
	case !failed:
		a.rest = announceRest
		if !closed(err) {
			a.log.Warn("cannot tell relays in other processes of new rows: they find them by polling; trying again", "error", err)
		}
	default:
		a.rest = min(2*a.rest, announceLongestRest)
	}
	a.waiting = a.waiting[:0]
	a.next = time.Now().Add(a.rest)
}

// closed reports whether the application has closed the pool, as it does when it ends. database/sql does not export that error.
func closed(err error) bool { return strings.HasSuffix(err.Error(), "sql: database is closed") }

// announcerOf returns the announcer of a pool, or that of the handle the plugin was put on where the pool is one connection: there,
// an announcement could end up in a transaction. It is nil where nobody is to be told.
func (p *Plugin) announcerOf(inner gorm.ConnPool, inserter *outbox.Inserter) *announcer {
	if !p.routing.Announce || inserter.Dialect() != outbox.Postgres {
		return nil
	}
	db, ok := inner.(*sql.DB)
	if connector, connects := inner.(gorm.GetDBConnector); !ok && connects {
		db, _ = connector.GetDBConn()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if db == nil {
		return p.announcer
	}
	if a := p.announcers[db]; a != nil {
		return a
	}
	a := &announcer{db: db, inserter: inserter, log: p.log}
	if p.announcers == nil {
		p.announcers, p.announcer = map[*sql.DB]*announcer{}, a
	}
	p.announcers[db] = a
	return a
}

// committed tells whoever delivers them of rows that were committed: the relay of this process, and where it does not, others.
func (p *Plugin) committed(arrivals []outbox.Arrival, others *announcer) {
	if !p.notify(arrivals) && others != nil {
		others.tell(arrivals)
	}
}
