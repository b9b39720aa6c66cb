package gormplugin

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/google/uuid"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/internal/failure"
	"github.com/gorm-fanout/fanout/internal/journal"
	"github.com/gorm-fanout/fanout/outbox"
)

const (
	// lookPause is the time to the next look where nothing else makes the plugin look before: short
	// against the time after which rows are purged.
	lookPause = 5 * time.Second
	// looks bounds how often the rows of a transaction that has ended are looked for. What is still
	// not there was rolled back, as far as anybody can tell.
	looks = 5
	// longestWatch bounds how long a transaction is waited for.
	longestWatch = time.Hour
	// maxWatched bounds the events of which the outcome is not known. Others stay unconfirmed.
	maxWatched = 10_000
)

// lookTime bounds one look, and promptLookTime one that a statement of the application waits for. Tests
// allow more, so that a slow machine changes no result.
var (
	lookTime       = 5 * time.Second
	promptLookTime = time.Second
)

// outcomes finds out what became of events whose rows were written in a transaction whose end the
// plugin has not seen: one of the caller's own, or one whose commit got no answer. Once their rows
// can be seen from outside of it, the events are taken from their aggregates, so that they are not
// written once more when the rows have been published and purged by the next save. It looks before
// the next transaction or statement on a pool of the plugin, and else after some seconds. No
// goroutine waits for anything. It is safe for concurrent use; the zero value is ready to use.
type outcomes struct {
	waiting atomic.Int32 // transactions, for a glance without the lock

	looking sync.Mutex // one look at a time; held before mu

	mu      sync.Mutex
	unseen  []*unseen
	watched int  // events of all of them
	timed   bool // lookLater will run
}

// unseen is one such transaction. Aggregates that the application has let go of are let go of here,
// too.
type unseen struct {
	tx       *sql.Tx // nil where it has ended, or that is unknown
	pool     *sql.DB
	inserter *outbox.Inserter
	since    time.Time

	correlation string // generated for its events, "" as yet; guarded by outcomes.mu

	events map[weak.Pointer[journal.Raised]]struct{} // guarded by outcomes.mu
	looks  int                                       // guarded by outcomes.looking
}

// watch notes events that were written in a transaction. Those of one transaction may come in
// several calls.
func (o *outcomes) watch(flush []journal.Flush, tx *sql.Tx, pool *sql.DB, inserter *outbox.Inserter) {
	if pool == nil || len(flush) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	i := o.find(tx)
	if i < 0 {
		i = len(o.unseen)
		o.unseen = append(o.unseen, &unseen{tx: tx, pool: pool, inserter: inserter, since: time.Now(), events: map[weak.Pointer[journal.Raised]]struct{}{}})
		o.waiting.Add(1)
	}
	u := o.unseen[i]
	before := len(u.events)
	for i := range flush {
		if o.watched+len(u.events)-before >= maxWatched {
			break
		}
		u.events[weak.Make(flush[i].Raised)] = struct{}{}
	}
	o.watched += len(u.events) - before
	o.later()
}

// find is the place of a transaction in progress, or -1. o.mu is held.
func (o *outcomes) find(tx *sql.Tx) int {
	return slices.IndexFunc(o.unseen, func(u *unseen) bool { return tx != nil && u.tx == tx })
}

// correlation is what was generated for the events of a transaction in progress, "" where nothing was.
func (o *outcomes) correlation(tx *sql.Tx) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if i := o.find(tx); i >= 0 {
		return o.unseen[i].correlation
	}
	return ""
}

// correlate notes it.
func (o *outcomes) correlate(tx *sql.Tx, correlation string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if i := o.find(tx); i >= 0 {
		o.unseen[i].correlation = correlation
	}
}

// later sees to it that there is another look, if it is needed. o.mu is held.
func (o *outcomes) later() {
	if !o.timed && len(o.unseen) > 0 {
		o.timed = true
		time.AfterFunc(lookPause, o.lookLater)
	}
}

// lookLater is run by the timer.
func (o *outcomes) lookLater() {
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	o.looking.Lock()
	o.look(ctx)
	o.looking.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.timed = false
	o.later()
}

// lookNow looks before a statement or a transaction on a pool, which has no connection yet.
func (o *outcomes) lookNow(ctx context.Context) {
	if o.waiting.Load() == 0 || !o.looking.TryLock() {
		return
	}
	defer o.looking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, promptLookTime)
	defer cancel()
	o.look(ctx)
}

// look looks after each transaction that has ended. o.looking is held.
func (o *outcomes) look(ctx context.Context) {
	o.mu.Lock()
	all := slices.Clone(o.unseen)
	o.mu.Unlock()
	for _, u := range all {
		if over := o.lookAfter(ctx, u); over {
			o.mu.Lock()
			o.watched -= len(u.events)
			o.unseen = slices.DeleteFunc(o.unseen, func(other *unseen) bool { return other == u })
			o.waiting.Add(-1)
			o.mu.Unlock()
		}
	}
}

// lookAfter confirms the events whose rows are there, and reports whether there is nothing left to
// wait for.
func (o *outcomes) lookAfter(ctx context.Context, u *unseen) (over bool) {
	if u.tx != nil && !hasEnded(ctx, u.tx) {
		return time.Since(u.since) > longestWatch
	}
	pending := o.pending(u)
	if len(pending) == 0 {
		return true
	}
	ids := make([]uuid.UUID, 0, len(pending))
	for id := range pending {
		ids = append(ids, id)
	}
	there, err := u.inserter.Written(ctx, u.pool, ids)
	for _, id := range there {
		pending[id].Confirm()
	}
	u.looks++
	return err != nil && failure.PoolClosed(err) || len(there) == len(pending) || u.looks >= looks
}

// pending are the events that are not known to be written yet.
func (o *outcomes) pending(u *unseen) map[uuid.UUID]*journal.Raised {
	o.mu.Lock()
	defer o.mu.Unlock()
	pending := make(map[uuid.UUID]*journal.Raised)
	for pointer := range u.events {
		if event := pointer.Value(); event != nil && !event.Confirmed() {
			pending[event.ID] = event
			continue
		}
		delete(u.events, pointer)
		o.watched--
	}
	return pending
}

// hasEnded asks a transaction, and nothing else, whether it has been committed or rolled back, or
// is about to be: database/sql tells that before it finds out that the statement is none.
func hasEnded(ctx context.Context, tx *sql.Tx) bool {
	none := tx.StmtContext(ctx, new(sql.Stmt))
	return errors.Is(none.Close(), sql.ErrTxDone) //nolint:sqlclosecheck // it is what is asked
}

// watchForeign notes events that were written in a transaction of the caller's own, and the
// correlation id that was generated for it.
func (p *Plugin) watchForeign(db *gorm.DB, foreign gorm.Tx, inserter *outbox.Inserter, flush []journal.Flush, correlation string) {
	inside := db.Session(&gorm.Session{NewDB: true, Context: db.Statement.Context})
	inside.Statement.ConnPool = foreign
	pool, err := inside.DB() // the one that the transaction was begun on, where it is database/sql's
	if err != nil {
		return // who brings another kind of transaction tells by Notify
	}
	tx, _ := foreign.(*sql.Tx)
	p.outcomes.watch(flush, tx, pool, inserter)
	p.outcomes.correlate(tx, correlation)
}

// watchCommit notes events after a commit that has failed, if it may have succeeded: when the
// connection was lost, say. A database that says why it refuses has rolled back.
func (t *tx) watchCommit(flush []journal.Flush, err error) {
	if len(flush) == 0 || refused(err) {
		return
	}
	for i := range flush {
		flush[i].MayBeWritten()
	}
	pool, err := t.GetDBConn()
	if err != nil {
		return // the next write of the events finds out
	}
	// An attempt that is repeated raises the same messages again, for which it needs them.
	t.attempt.AtEnd(func() { t.plugin.outcomes.watch(flush, nil, pool, t.inserter) })
}

// refused reports whether the database has answered a COMMIT with an error, which means that there
// was none. Each driver is known by its own way to say so; none is linked here.
func refused(err error) bool {
	var (
		postgres  interface{ SQLState() string }
		sqlServer interface{ SQLErrorNumber() int32 }
		sqlite    interface{ Code() int }
	)
	switch {
	case errors.As(err, &postgres):
		// Connection lost, statement of unknown completion, shutdown of the server.
		state := postgres.SQLState()
		return len(state) == 5 && state[:2] != "08" && state != "40003" && state[:3] != "57P"
	case errors.As(err, &sqlServer):
		return true
	case errors.As(err, &sqlite):
		code := sqlite.Code() & 0xff
		return slices.Contains([]int{1, 5, 19}, code) // error, busy, constraint
	default:
		sure, maybe := endsTransactionOnMySQL(err)
		return sure || maybe || errors.Is(err, sql.ErrTxDone)
	}
}
