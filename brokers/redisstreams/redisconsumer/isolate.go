package redisconsumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumer"
)

const (
	// isolateAfter is after how many deliveries an entry is handled alone: so many processes had
	// claimed it, with others, when they died.
	isolateAfter = 3
	// vacateGrace is how long, beside the timeout of handlers, an isolated message waits until nothing
	// else is claimed.
	vacateGrace = 5 * time.Second
	// vacateLook is how often that is looked at.
	vacateLook = 5 * time.Millisecond
)

// A crashError is what is wrong with a message that is not run again.
type crashError struct{ deliveries int64 }

func (e *crashError) Error() string {
	return fmt.Sprintf("redisconsumer: the message was delivered %d times, the last time alone, and each time the process crashed or the attempt failed: "+
		"it is not tried again", e.deliveries)
}

// isolate handles entries that may have crashed a process one at a time, with nothing else claimed:
// should one of them kill the process, it costs no other message anything.
func (r *run) isolate(ctx context.Context, f *feed, idle time.Duration, rows []pending) error {
	var trials []pending
	for _, row := range rows {
		if row.RetryCount < r.lastChance() {
			trials = append(trials, row)
			continue
		}
		if err := r.abandonCrasher(ctx, f, idle, row); err != nil {
			return err
		}
	}
	if len(trials) == 0 {
		return nil
	}
	r.exclusive.Lock() // reads that are on their way come to their end first
	defer r.exclusive.Unlock()
	defer func() {
		for _, f := range r.feeds {
			f.unsure.Store(true) // what no other member has taken meanwhile is claimed again
		}
	}()
	vacated := false
	for _, row := range trials {
		if ctx.Err() != nil {
			return nil
		}
		// It is reserved before the others are given back, so that not all members of the group
		// stop for it.
		all, err := r.claimRows(ctx, f, idle, []pending{row}, false)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			continue
		}
		d := all[0]
		r.reserve(d)
		if !vacated && !r.vacate(ctx, d) {
			if ctx.Err() == nil {
				d.pause = r.config.ClaimAfter / 2
			}
			d.Nack()
			return nil
		}
		vacated = true
		if err := r.try(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// lastChance is the number of deliveries after which a message is not run any more: it was handled
// alone at least once.
func (c *Consumer) lastChance() int64 {
	return int64(max(c.config.Retry.MaxAttempts, isolateAfter+1))
}

// abandonCrasher has a message put among the dead letters without running it.
func (r *run) abandonCrasher(ctx context.Context, f *feed, idle time.Duration, row pending) error {
	r.exclusive.RLock()
	defer r.exclusive.RUnlock()
	all, err := r.claimRows(ctx, f, idle, []pending{row}, false)
	if err != nil {
		return err
	}
	for _, d := range all {
		d.entry.History = consumer.History{Past: inbox.Past{Failures: int(row.RetryCount)}, Why: &crashError{row.RetryCount}}
		d.entry.AtLeast = int(row.RetryCount)
		m := d.entry.Message
		log := r.log.With("source", m.Source, "message_id", m.ID, "type", m.Type, "position", m.Position)
		log.ErrorContext(ctx, "message abandoned", "attempts", row.RetryCount, "error", d.entry.Why)
	}
	r.admit(f, all) //nolint:contextcheck // handlers outlive ctx: they have the session's
	return nil
}

// reserve claims an entry that is to be handled alone, and not yet.
func (r *run) reserve(d *delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d.alone = make(chan struct{})
	d.feed.claims[d.position] = d
	d.hold()
}

// vacate gives back everything but one entry: handlers that run end and are acknowledged, everything else
// is for whoever wants it. It reports whether it came to that.
func (r *run) vacate(ctx context.Context, but *delivery) (alone bool) {
	patience := max(r.config.Timeout, r.config.Timeout+vacateGrace) // it may overflow
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if r.Still(limited, patience) {
		r.Withdraw(ctx, func(*consumer.Entry) bool { return true })
		r.Resume() //nolint:contextcheck // handlers outlive ctx: they have the session's
		for alone = r.alone(but); !alone && consumer.Pause(limited, vacateLook); {
			alone = r.alone(but)
		}
	}
	if !alone && ctx.Err() == nil {
		r.log.WarnContext(ctx, "isolated message has to wait", "after", patience)
	}
	return alone
}

// alone reports whether the server knows of nothing else that we have claimed.
func (r *run) alone(but *delivery) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !slices.ContainsFunc(r.feeds, func(f *feed) bool {
		n := len(f.claims)
		return n > 1 || n == 1 && f.claims[but.position] != but
	})
}

// try has a message handled that is alone, and waits until it is done with.
func (r *run) try(ctx context.Context, d *delivery) error {
	err := r.ensureOurs(ctx, d.feed, []*delivery{d}, 1) // now it is charged with it
	r.mu.Lock()
	count, ours := int(d.count), d.state == claimed
	if err != nil {
		r.forget(d)
	}
	r.mu.Unlock()
	if err != nil || !ours {
		return err
	}
	e := d.entry
	e.Message.Deliveries, e.Past.Failures, e.AtLeast = count, count-1, count-1
	e.Expire = time.Now() // it is given back rather than waits for its next attempt here
	r.Take(e, d)          //nolint:contextcheck // handlers outlive ctx: they have the session's
	ticker := time.NewTicker(r.config.ClaimAfter)
	defer ticker.Stop()
	for late := false; ; {
		select {
		case <-d.alone: // the next one is to be alone, too
			return nil
		case <-ctx.Done(): // it ends with the session
			return nil
		case <-ticker.C:
		}
		r.mu.Lock()
		done := d.state != claimed
		r.mu.Unlock()
		if done && late {
			return errUnsettled
		}
		late = done
	}
}

// errUnsettled ends the wait for the server to learn what has become of an isolated message: it is out, or
// the group is gone, which is brought back by who waits.
var errUnsettled = errors.New("redisconsumer: the server does not know yet what has become of an isolated message")

// putBack is what becomes of an isolated message that is given back: whoever is the first to find it after
// its pause takes it, at the latest after claimAfter. A delivery that has failed stays charged, also where
// its handler has not come to an end. The lock is held.
func (d *delivery) putBack() {
	e, now := d.entry, time.Now()
	pause := max(e.Due().Sub(now), d.pause, 0)
	d.idle, d.charge = max(d.idle-pause, 0), 0
	if e.Why == nil && e.Past.Setbacks > 0 {
		d.charge = -1 // nothing is wrong with the message
	}
	d.feed.rest[d.position] = now.Add(pause)
}

// rested is when the next one may be handled, far away where there is none.
func (r *run) rested(f *feed) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := time.Now().Add(time.Hour)
	for _, until := range f.rest {
		if until.Before(first) {
			first = until
		}
	}
	return first
}

// wake ends the rest of those that have rested long enough.
func (r *run) wake(f *feed, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(f.rest, func(_ string, until time.Time) bool { return !until.After(now) })
}
