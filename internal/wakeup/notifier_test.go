package wakeup

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// loudspeaker is a database that notes the notifications sent, and when.
type loudspeaker struct {
	mu    sync.Mutex
	said  []string
	at    []time.Time
	takes time.Duration
	err   error
	hangs bool // like a pool that is used up
	panic any
}

func (l *loudspeaker) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	l.mu.Lock()
	l.said = append(l.said, query+" "+args[0].(string)+" "+args[1].(string))
	l.at = append(l.at, time.Now())
	takes, err, hangs, reason := l.takes, l.err, l.hangs, l.panic
	l.mu.Unlock()
	if reason != nil {
		panic(reason)
	}
	if hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	time.Sleep(takes)
	return driver.RowsAffected(1), err
}

func (l *loudspeaker) set(change func(*loudspeaker)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
}

// taken returns what was said since the last call.
func (l *loudspeaker) taken() (said []string, at []time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	said, at = l.said, l.at
	l.said, l.at = nil, nil
	return said, at
}

func newNotifier(t *testing.T) (*Notifier, *loudspeaker, *strings.Builder) {
	t.Helper()
	l, log := &loudspeaker{}, &strings.Builder{}
	return NewNotifier(l, "app.outbox", slog.New(slog.NewTextHandler(log, nil))), l, log
}

const notification = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2) fanout:app.outbox 1 "

// The first is told at once, and what comes within the next milliseconds in one.
func TestNotificationsAreCoalesced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, l, log := newNotifier(t)
		l.takes = time.Millisecond
		began := time.Now()
		a.Wake([]WakeUp{{Broker: "default", Shards: 1}})
		synctest.Wait()
		for range 1000 {
			a.Wake([]WakeUp{{Broker: "default", Shards: 2}, {Broker: "partner", Shards: 4}})
			a.Wake([]WakeUp{{Broker: "default", Shards: 8}})
		}
		time.Sleep(time.Second)
		synctest.Wait()
		said, at := l.taken()
		assert.Equal(t, []string{notification + "default:1", notification + "default:a partner:4"}, said)
		assert.Equal(t, []time.Time{began, began.Add(notifyGap)}, at)

		began = time.Now() // a steady stream, for a second
		for range 1000 {
			a.Wake([]WakeUp{{Broker: "default", Shards: 1}})
			time.Sleep(time.Millisecond)
		}
		time.Sleep(notifyLongestGap + l.takes)
		said, at = l.taken()
		assert.InDelta(t, time.Second/notifyLongestGap, len(said), 4, "a few more until the gap has grown")
		assert.Equal(t, began, at[0])
		synctest.Wait()
		assert.False(t, a.busy, "nothing lives on")
		assert.Empty(t, log.String())
	})
}

// The gap grows however long an notification takes: one that takes longer than the first gap is not
// followed by the next one at once.
func TestNotificationsThatTakeTime(t *testing.T) {
	t.Parallel()
	for _, takes := range []time.Duration{0, notifyGap, 2 * notifyGap, 5 * notifyGap} {
		synctest.Test(t, func(t *testing.T) {
			a, l, _ := newNotifier(t)
			l.takes = takes
			for range 1000 {
				a.Wake([]WakeUp{{Broker: "default", Shards: 1}})
				time.Sleep(time.Millisecond)
			}
			time.Sleep(notifyLongestGap + takes)
			said, _ := l.taken()
			assert.InDelta(t, time.Second/notifyLongestGap, len(said), 5, takes)
			time.Sleep(2 * notifyLongestGap)
			a.Wake([]WakeUp{{Broker: "default", Shards: 1}})
			synctest.Wait()
			assert.Equal(t, notifyGap, a.gap, "after a pause")
			time.Sleep(notifyLongestGap + takes)
			synctest.Wait()
		})
	}
}

// One at a time, whatever the pool does; then it is left alone for a while. Nobody waits for it.
func TestNotificationsThatFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, l, log := newNotifier(t)
		l.hangs = true
		began := time.Now()
		for range 1000 {
			a.Wake([]WakeUp{{Broker: "default", Shards: 1}})
		}
		assert.Equal(t, began, time.Now(), "no commit waits")
		time.Sleep(notifyTime)
		synctest.Wait()
		said, _ := l.taken()
		assert.Len(t, said, 1, "one waits for a connection")
		for range 3600 { // for an hour
			a.Wake([]WakeUp{{Broker: "default", Shards: 1}})
			time.Sleep(time.Second)
		}
		synctest.Wait()
		assert.False(t, a.busy, "nothing waits for better times")
		said, _ = l.taken()
		assert.InDelta(t, time.Hour/notifyLongestRest, len(said), 10)
		assert.Equal(t, 1, strings.Count(log.String(), "relays not notified"), "said once")
		l.set(func(l *loudspeaker) { l.hangs, l.err = false, errors.New("permission denied") })
		for range 3600 {
			a.Wake([]WakeUp{{Broker: "default", Shards: 1}})
			time.Sleep(time.Second)
		}
		assert.Equal(t, 2, strings.Count(log.String(), "relays not notified"))
		assert.Equal(t, 1, strings.Count(log.String(), "permission denied"), "another cause is news")
		l.set(func(l *loudspeaker) { l.err = nil })
		time.Sleep(notifyLongestRest)
		a.Wake([]WakeUp{{Broker: "default", Shards: 1}})
		synctest.Wait()
		assert.Equal(t, 1, strings.Count(log.String(), "relays notified again"))
		l.taken()
		time.Sleep(notifyGap)
		a.Wake([]WakeUp{{Broker: "default", Shards: 1}})
		synctest.Wait()
		said, _ = l.taken()
		assert.Len(t, said, 1, "as before")

		a, l, log = newNotifier(t)
		l.err = errors.New("no such function")
		a.Wake([]WakeUp{{Broker: "default"}})
		synctest.Wait()
		assert.Contains(t, log.String(), "no such function")
		for _, closed := range []string{"sql: database is closed", "closed pool"} { // of a sql.DB, and of a pgxpool.Pool below one
			a, l, log = newNotifier(t)
			l.err = errors.New(closed)
			a.Wake([]WakeUp{{Broker: "default"}})
			synctest.Wait()
			assert.Empty(t, log.String(), "the application is about to end")
		}
	})
}

// A pool of the application's own that panics does not end the process: it is said once, with the place and
// the remedy, and the pool is asked again after a while.
func TestNotificationsThatPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, l, log := newNotifier(t)
		l.panic = "no pool is set"
		for range 3600 {
			a.Wake([]WakeUp{{Broker: "default", Shards: 1}})
			time.Sleep(time.Second)
		}
		synctest.Wait()
		said, _ := l.taken()
		assert.InDelta(t, time.Hour/notifyLongestRest, len(said), 10)
		assert.Equal(t, 1, strings.Count(log.String(), "relays not notified: the pool panicked"), log.String())
		assert.Contains(t, log.String(), "outbox: notify relays of rows in app.outbox: *wakeup.loudspeaker panicked: no pool is set: "+
			"correct the pool or its driver, where the stack says")
		assert.Contains(t, log.String(), "notifier_test.go", "the stack")
		l.set(func(l *loudspeaker) { l.panic = nil })
		time.Sleep(notifyLongestRest)
		a.Wake([]WakeUp{{Broker: "default", Shards: 1}})
		synctest.Wait()
		assert.Contains(t, log.String(), "relays notified again")
		assert.False(t, a.busy)
	})
}
