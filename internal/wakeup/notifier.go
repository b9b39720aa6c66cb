package wakeup

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/gorm-fanout/fanout/internal/failure"
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

// A Notifier wakes relays in other processes: after the commit, on another connection of the same
// pool, one notification at a time, so that a pool that is used up has one more waiter and no
// commit waits. Its goroutine lives while there is something to send. Polling finds what it cannot
// send.
type Notifier struct {
	db    Execer
	table string
	log   *slog.Logger

	mu      sync.Mutex
	waiting []WakeUp
	busy    bool      // the goroutine lives
	next    time.Time // no notification before
	gap     time.Duration
	rest    time.Duration // 0 unless the last notification failed
	failing failure.Standing
}

// NewNotifier makes one that notifies relays of a table by this pool of its PostgreSQL database.
func NewNotifier(db Execer, table string, log *slog.Logger) *Notifier {
	return &Notifier{db: db, table: table, log: log}
}

// Wake never blocks. It copies what it needs of wakeUps.
func (n *Notifier) Wake(wakeUps []WakeUp) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.rest > 0 && time.Now().Before(n.next) {
		return
	}
	n.waiting = Merge(n.waiting, wakeUps...)
	if !n.busy {
		n.busy = true
		go n.work()
	}
}

// work sends notifications until nothing is waiting.
func (n *Notifier) work() {
	var sent []WakeUp
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
func (n *Notifier) gapAfter(now time.Time) time.Duration {
	if n.gap == 0 || now.Sub(n.next) >= n.gap {
		return notifyGap
	}
	return min(2*n.gap, notifyLongestGap)
}

// send survives a pool that panics, which may be of the application's own making: nothing above its
// goroutine would recover.
func (n *Notifier) send(wakeUps []WakeUp) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = &panicError{fmt.Sprintf("outbox: notify relays of rows in %s: %T panicked: %.200v: "+
				"correct the pool or its driver, where the stack says", n.table, n.db, reason), string(debug.Stack())}
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), notifyTime) // no caller waits for it
	defer cancel()
	return Notify(ctx, n.db, n.table, wakeUps)
}

// record notes the outcome of a notification, and logs what is news.
func (n *Notifier) record(err error) {
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
	if !failure.PoolClosed(err) && n.failing.Failed(err) {
		if panicked, ok := err.(*panicError); ok { //nolint:errorlint // it comes from send
			n.log.Error("relays not notified: the pool panicked", "error", err, "stack", panicked.stack)
		} else {
			n.log.Warn("relays not notified: they find rows by polling", "error", err)
		}
	}
	n.waiting = n.waiting[:0]
	n.next = time.Now().Add(n.rest)
}

// panicError is about a pool that panicked.
type panicError struct{ text, stack string }

func (p *panicError) Error() string { return p.text }
