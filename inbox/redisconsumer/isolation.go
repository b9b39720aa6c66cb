package redisconsumer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gorm-fanout/fanout/inbox"
)

// isolateAfter is after how many deliveries an entry is handled alone: so many processes had
// claimed it, with others, when they died.
const isolateAfter = 3

// A crashError is what is wrong with a message that is not run again.
type crashError struct{ deliveries int64 }

func (e *crashError) Error() string {
	return fmt.Sprintf("redisconsumer: the message was delivered %d times, the last time alone, and each time the process crashed or the attempt failed: "+
		"it is not tried again", e.deliveries)
}

// isolation handles entries that may have crashed a process one at a time, with nothing else
// claimed.
type isolation struct {
	c      *Consumer
	claims *claims
	keeper *keeper
	// exclusive is locked, shared, while entries are claimed, and exclusively while one that may
	// have crashed a process is handled alone.
	exclusive sync.RWMutex
}

// isolate handles entries that may have crashed a process one at a time, with nothing else claimed:
// should one of them kill the process, it costs no other message anything.
func (iso *isolation) isolate(ctx context.Context, st *stream, idle time.Duration, rows []row) error {
	var trials []row
	for _, r := range rows {
		if r.RetryCount < iso.c.lastChance() {
			trials = append(trials, r)
			continue
		}
		if err := iso.abandonCrasher(ctx, st, idle, r); err != nil {
			return err
		}
	}
	if len(trials) == 0 {
		return nil
	}
	iso.exclusive.Lock() // reads that are under way come to their end first
	defer iso.exclusive.Unlock()
	var away []*item
	defer func() { iso.resume(ctx, away) }()
	for _, r := range trials {
		if ctx.Err() != nil {
			return nil
		}
		// It is reserved before the others are sent away, so that not all consumers of the group
		// stop for it.
		items, err := iso.c.claimRows(ctx, st, idle, []row{r}, false)
		if err != nil {
			return err
		}
		if len(items) == 0 {
			continue
		}
		it := items[0]
		iso.claimAlone(it)
		if away == nil {
			var alone bool
			if away, alone = iso.withdraw(ctx); !alone {
				pause := iso.c.claimAfter / 2
				if ctx.Err() != nil {
					pause = 0
				}
				return iso.putBack(ctx, it, pause, 0)
			}
		}
		if err := iso.try(ctx, it); err != nil {
			return err
		}
	}
	return nil
}

// lastChance is the number of deliveries after which a message is not run any more: it was handled
// alone at least once.
func (c *Consumer) lastChance() int64 {
	return int64(max(c.retry.MaxAttempts, isolateAfter+1))
}

// abandonCrasher forwards a message to the dead letters without running it.
func (iso *isolation) abandonCrasher(ctx context.Context, st *stream, idle time.Duration, r row) error {
	iso.exclusive.RLock()
	defer iso.exclusive.RUnlock()
	items, err := iso.c.claimRows(ctx, st, idle, []row{r}, false)
	if err != nil {
		return err
	}
	for _, it := range items {
		it.abandoned = &crashError{r.RetryCount}
		it.past.Failures = int(r.RetryCount)
	}
	iso.claims.admit(st, items)
	return nil
}

// claimAlone claims an item without queueing it.
func (iso *isolation) claimAlone(it *item) {
	iso.claims.mu.Lock()
	defer iso.claims.mu.Unlock()
	it.state = running
	it.cancel = func(error) {}
	it.stream.items[it.position] = it
	it.hold()
}

// withdraw has nothing claimed any more: handlers under way end and are acknowledged, everything
// else is lent to whoever wants it. It reports whether it came to that.
func (iso *isolation) withdraw(ctx context.Context) (away []*item, alone bool) {
	iso.claims.mu.Lock()
	iso.claims.paused = true
	iso.claims.mu.Unlock()
	quiet := func() bool {
		if iso.claims.busy > 0 {
			return false
		}
		for _, st := range iso.c.streams {
			if len(st.acks) > 0 {
				return false
			}
		}
		return true
	}
	away = []*item{}
	if !iso.claims.await(ctx, iso.c.timeout+handlersGrace, quiet) {
		if ctx.Err() == nil {
			iso.c.log.WarnContext(ctx, "isolated message has to wait",
				"after", iso.c.timeout+handlersGrace)
		}
		return away, false
	}
	for _, st := range iso.c.streams {
		items := iso.claims.claimed(st, func(it *item) bool {
			it.lent = it.state == waiting
			return it.lent
		})
		away = append(away, items...)
		if err := iso.keeper.own(ctx, st, items, iso.c.claimAfter, -1); err != nil {
			iso.c.outages.begin(ctx, st, "lend", err)
			return away, false
		}
	}
	return away, true
}

// resume takes back what nobody has taken meanwhile, and goes on.
func (iso *isolation) resume(ctx context.Context, away []*item) {
	for _, st := range iso.c.streams {
		var items []*item
		for _, it := range away {
			if it.stream == st {
				items = append(items, it)
			}
		}
		if err := iso.keeper.own(context.WithoutCancel(ctx), st, items, 0, 1); err != nil {
			iso.c.outages.begin(ctx, st, "take back", err) // they are renewed with everything else that is claimed
		}
	}
	iso.claims.mu.Lock()
	for _, it := range away {
		it.lent = false
	}
	iso.claims.paused = false
	iso.claims.mu.Unlock()
	nudge(iso.claims.wake)
}

// try runs one attempt at a message that is alone.
func (iso *isolation) try(ctx context.Context, it *item) error {
	st := it.stream
	if err := iso.keeper.own(ctx, st, []*item{it}, 0, 1); err != nil { // now it is charged with it
		return iso.letGo(it, err)
	}
	iso.claims.mu.Lock()
	ours := it.state == running
	working, cancel := context.WithCancelCause(iso.claims.work)
	defer cancel(nil)
	it.cancel = cancel
	it.message.Deliveries = int(it.count)
	iso.claims.mu.Unlock()
	if !ours {
		return iso.letGo(it, nil)
	}
	if it.abandoned == nil {
		it.past = inbox.Past{Failures: int(it.count) - 1, Setbacks: st.rest[it.position].setbacks}
		a := iso.attemptAlone(ctx, working, it)
		if a == nil {
			return nil // it is still claimed, and is taken over by another when it was idle for long enough
		}
		iso.claims.mu.Lock()
		st.counters.attempt(a)
		switch {
		case it.state == lost:
			iso.claims.forget(it)
			iso.claims.mu.Unlock()
			return nil
		case a.Done():
			iso.claims.finished(it)
			iso.claims.mu.Unlock()
			iso.claims.await(ctx, iso.c.claimAfter, func() bool { return st.items[it.position] == nil }) // the next one is to be alone, too
			return nil
		}
		iso.claims.mu.Unlock()
		if !a.Abandon {
			charge := int64(0)
			if a.Failures == it.past.Failures {
				charge = -1 // nothing is wrong with the message
			}
			it.past = a.Past
			return iso.putBack(ctx, it, a.Retry, charge)
		}
		it.past, it.abandoned = a.Past, a.Err
	}
	iso.keeper.forward(working, it) //nolint:contextcheck // as above
	iso.claims.mu.Lock()
	unforwarded := st.items[it.position] == it
	iso.claims.mu.Unlock()
	if unforwarded {
		return iso.putBack(ctx, it, pauseAfter(1), 0)
	}
	return nil
}

// attemptAlone runs the handler of an isolated message. A stop does not wait for it for ever: the
// answer is nil where the handler goes on although its context has ended. It counts as being under
// way, like every other.
func (iso *isolation) attemptAlone(ctx, working context.Context, it *item) *inbox.Attempt {
	message, past, attempts := it.message, it.past, make(chan *inbox.Attempt, 1)
	iso.claims.mu.Lock()
	iso.claims.underWay(1)
	iso.claims.mu.Unlock()
	go func() {
		a := iso.c.runner.Attempt(working, message, past)
		iso.claims.handlerEnded() // before the answer: others are started after it
		attempts <- a
	}()
	late := time.NewTimer(iso.c.timeout + handlersGrace)
	defer late.Stop()
	for {
		select {
		case a := <-attempts:
			return a
		case <-late.C:
			iso.c.log.WarnContext(ctx, "isolated message overdue",
				"stream", it.stream.name, "entry", it.position, "after", iso.c.timeout+handlersGrace)
		case <-ctx.Done():
			last := time.NewTimer(iso.c.shutdown + handlersGrace)
			defer last.Stop()
			select {
			case a := <-attempts:
				return a
			case <-last.C:
				return nil
			}
		}
	}
}

// putBack puts an isolated message back, for whoever is the first to find it after the pause; at
// the latest it is found after claimAfter.
func (iso *isolation) putBack(ctx context.Context, it *item, pause time.Duration, charge int64) error {
	now := time.Now()
	it.stream.rest[it.position] = rest{now.Add(pause), now, it.past.Setbacks}
	err := iso.keeper.own(context.WithoutCancel(ctx), it.stream, []*item{it}, max(iso.c.claimAfter-pause, 0), charge)
	return iso.letGo(it, err)
}

// letGo lets go of an isolated message without doing anything to its entry.
func (iso *isolation) letGo(it *item, err error) error {
	iso.claims.mu.Lock()
	defer iso.claims.mu.Unlock()
	iso.claims.forget(it)
	return err
}

// resting are isolated messages that were put back until their next attempt, by position. Others
// may take them then, too.
type resting map[string]rest

type rest struct {
	until    time.Time // zero: it is over
	noted    time.Time
	setbacks int
}

// restMemory is for how long it is known how often an isolated message had a setback.
const restMemory = 10 * time.Minute

// holds reports whether an entry is to be left alone.
func (r resting) holds(position string, now time.Time) bool { return now.Before(r[position].until) }

// due is when the next one may be handled, far away where there is none.
func (r resting) due() time.Time {
	first := time.Now().Add(time.Hour)
	for _, one := range r {
		if !one.until.IsZero() && one.until.Before(first) {
			first = one.until
		}
	}
	return first
}

// wake ends the rest of those that have rested long enough.
func (r resting) wake(now time.Time) {
	for position, one := range r {
		if !one.until.After(now) {
			one.until = time.Time{}
			r[position] = one
		}
		if now.Sub(one.noted) > restMemory {
			delete(r, position)
		}
	}
}
