package redisconsumer

import (
	"context"
	"fmt"
	"time"
)

// isolateAfter is after how many deliveries an entry is handled alone: so many processes had
// claimed it, with others, when they died.
const isolateAfter = 3

// A crashError is what is wrong with a message that is not run again.
type crashError struct{ deliveries int64 }

func (e *crashError) Error() string {
	return fmt.Sprintf("redisconsumer: the message was handed out %d times, the last of them alone, and each time the process died or the attempt failed: "+
		"it is not tried again", e.deliveries)
}

// isolate handles entries that may have crashed a process one at a time, with nothing else claimed:
// should one of them kill the process, it costs no other message anything.
func (s *session) isolate(ctx context.Context, st *stream, idle time.Duration, rows []row) error {
	var trials []row
	for _, r := range rows {
		if r.RetryCount < s.lastChance() {
			trials = append(trials, r)
			continue
		}
		if err := s.abandonCrasher(ctx, st, idle, r); err != nil {
			return err
		}
	}
	if len(trials) == 0 {
		return nil
	}
	s.isolation.Lock() // reads that are under way come to their end first
	defer s.isolation.Unlock()
	var away []*item
	defer func() { s.resume(ctx, away) }()
	for _, r := range trials {
		if ctx.Err() != nil {
			return nil
		}
		// It is reserved before the others are sent away, so that not all consumers of the group
		// stop for it.
		items, err := s.claimRows(ctx, st, idle, []row{r}, false)
		if err != nil {
			return err
		}
		if len(items) == 0 {
			continue
		}
		it := items[0]
		s.claimAlone(it)
		if away == nil {
			var alone bool
			if away, alone = s.withdraw(ctx); !alone {
				pause := s.claimAfter / 2
				if ctx.Err() != nil {
					pause = 0
				}
				return s.putBack(ctx, it, pause, 0)
			}
		}
		if err := s.try(ctx, it); err != nil {
			return err
		}
	}
	return nil
}

// lastChance is the number of deliveries after which a message is not run any more: it was handled
// alone at least once.
func (s *session) lastChance() int64 {
	return int64(max(s.retry.MaxAttempts, isolateAfter+1))
}

// abandonCrasher forwards a message to the dead letters without running it.
func (s *session) abandonCrasher(ctx context.Context, st *stream, idle time.Duration, r row) error {
	s.isolation.RLock()
	defer s.isolation.RUnlock()
	items, err := s.claimRows(ctx, st, idle, []row{r}, false)
	if err != nil {
		return err
	}
	for _, it := range items {
		it.abandoned = &crashError{r.RetryCount}
		it.past.Failures = int(r.RetryCount)
	}
	s.admit(st, items)
	return nil
}

// claimAlone claims an item without queueing it.
func (s *session) claimAlone(it *item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	it.state = running
	it.cancel = func(error) {}
	it.stream.items[it.position] = it
}

// withdraw has nothing claimed any more: handlers under way end and are acknowledged, everything
// else is lent to whoever wants it. It reports whether it came to that.
func (s *session) withdraw(ctx context.Context) (away []*item, alone bool) {
	s.mu.Lock()
	s.paused = true
	s.mu.Unlock()
	quiet := func() bool {
		if s.busy > 0 {
			return false
		}
		for _, st := range s.streams {
			if len(st.acks) > 0 {
				return false
			}
		}
		return true
	}
	away = []*item{}
	if !s.await(ctx, s.timeout+handlersGrace, quiet) {
		if ctx.Err() == nil {
			s.log.WarnContext(ctx, "isolated message has to wait",
				"after", s.timeout+handlersGrace)
		}
		return away, false
	}
	for _, st := range s.streams {
		items := s.claimed(st, func(it *item) bool {
			it.lent = it.state == waiting
			return it.lent
		})
		away = append(away, items...)
		if err := s.own(ctx, st, items, s.claimAfter, -1); err != nil {
			s.outages.begin(ctx, st, "lend", err)
			return away, false
		}
	}
	return away, true
}

// resume takes back what nobody has taken meanwhile, and goes on.
func (s *session) resume(ctx context.Context, away []*item) {
	for _, st := range s.streams {
		var items []*item
		for _, it := range away {
			if it.stream == st {
				items = append(items, it)
			}
		}
		if err := s.own(context.WithoutCancel(ctx), st, items, 0, 1); err != nil {
			s.outages.begin(ctx, st, "take back", err) // they are renewed with everything else that is claimed
		}
	}
	s.mu.Lock()
	for _, it := range away {
		it.lent = false
	}
	s.paused = false
	s.mu.Unlock()
	nudge(s.wake)
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
