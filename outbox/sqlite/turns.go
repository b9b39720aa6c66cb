package sqlite

import (
	"context"
	"database/sql"
	"reflect"
	"time"
)

// How the store leaves the lock to other writers of the same file. A writer that finds the lock
// taken does not queue: SQLite's busy handler sleeps and tries again, up to 100 ms later, and a
// backlog that is drained without a pause would hold the lock at nearly each of these moments. So,
// while others write, the lock stays free for longer than it was held. The free time that follows a
// few messages is owed, up to a credit, and not waited for.
const (
	freeRatio   = 2                      // free time for each time that the lock was held
	credit      = 20 * time.Millisecond  // of free time that may be owed
	longestRest = 100 * time.Millisecond // a lease runs on meanwhile
	othersFor   = time.Second            // how long other writers are expected after they last wrote
)

// turns lets one goroutine of the store write at a time, so that they need not
// sleep for each other, and keeps the pauses.
type turns struct {
	now   func() time.Time // of the process, not of the rows
	token chan struct{}    // its holder may write, and change what follows

	last    any       // the driver's connection that wrote last
	version int64     // what it saw of the commits of others
	seen    time.Time // when others were last found to have written
	quits   time.Time // when nothing is owed any more
}

func newTurns() *turns { return &turns{now: time.Now, token: make(chan struct{}, 1)} }

// enter waits for the turn, until ctx ends.
func (t *turns) enter(ctx context.Context) error {
	select {
	case t.token <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	pause := t.quits.Add(-credit).Sub(t.now())
	if pause <= 0 {
		return nil
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		<-t.token
		return context.Cause(ctx)
	}
}

// leave ends the turn.
func (t *turns) leave() { <-t.token }

// meet notes, inside of a transaction that has the lock, whether others have committed since the
// last one. Only the connection that wrote last can tell: a commit through another one of the pool
// looks like that of another process.
func (t *turns) meet(ctx context.Context, conn *sql.Conn) error {
	var version int64
	if err := conn.QueryRowContext(ctx, "PRAGMA data_version").Scan(&version); err != nil {
		return err
	}
	var own any
	if err := conn.Raw(func(c any) error { own = c; return nil }); err != nil {
		return err
	}
	if !reflect.ValueOf(own).Comparable() {
		return nil
	}
	if own == t.last && version != t.version {
		t.seen = t.now()
	}
	t.last, t.version = own, version
	return nil
}

// held notes how long the lock was held, until now.
func (t *turns) held(since time.Time) {
	now := t.now()
	if since.Sub(t.seen) >= othersFor {
		t.quits = now
		return
	}
	owed := max(t.quits.Sub(since), 0) + freeRatio*now.Sub(since)
	t.quits = now.Add(min(owed, credit+longestRest))
}
