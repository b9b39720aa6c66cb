package redisstreams

import (
	"context"
	"fmt"
	"time"

	"github.com/gorm-fanout/fanout/inbox"
)

// suspicion is how many deliveries make an entry a suspect: so many processes had it in hand, in company, when they died.
const suspicion = 3

// A killsError is what is wrong with a message that is not run again.
type killsError struct{ deliveries int64 }

func (e *killsError) Error() string {
	return fmt.Sprintf("redisstreams: the message was handed out %d times, the last of them alone, and each time the process died or the attempt failed: "+
		"it is not tried again", e.deliveries)
}

// examine handles entries that may be poison one at a time, with nothing else in hand: should one of them kill the process, it costs no
// other message anything.
func (s *session) examine(ctx context.Context, l *lane, idle time.Duration, rows []row) error {
	var trials []row
	for _, r := range rows {
		if r.RetryCount < s.lastChance() {
			trials = append(trials, r)
			continue
		}
		if err := s.convict(ctx, l, idle, r); err != nil {
			return err
		}
	}
	if len(trials) == 0 {
		return nil
	}
	s.gate.Lock() // reads that are under way come to their end first
	defer s.gate.Unlock()
	var away []*item
	defer func() { s.resume(ctx, away) }()
	for _, r := range trials {
		if ctx.Err() != nil {
			return nil
		}
		// It is reserved before the others are sent away, so that not all consumers of the group stop for it.
		items, err := s.seize(ctx, l, idle, []row{r}, false)
		if err != nil {
			return err
		}
		if len(items) == 0 {
			continue
		}
		it := items[0]
		s.hold(it)
		if away == nil {
			var alone bool
			if away, alone = s.withdraw(ctx); !alone {
				pause := s.claimAfter / 2
				if ctx.Err() != nil {
					pause = 0
				}
				return s.settle(ctx, it, pause, 0)
			}
		}
		if err := s.try(ctx, it); err != nil {
			return err
		}
	}
	return nil
}

// lastChance is the number of deliveries after which a message is not run any more: it was handled alone at least once.
func (s *session) lastChance() int64 {
	attempts := s.retry.MaxAttempts
	if attempts == 0 {
		attempts = inbox.DefaultConsumerAttempts
	}
	return int64(max(attempts, suspicion+1))
}

// convict puts a message among the dead letters without running it.
func (s *session) convict(ctx context.Context, l *lane, idle time.Duration, r row) error {
	s.gate.RLock()
	defer s.gate.RUnlock()
	items, err := s.seize(ctx, l, idle, []row{r}, false)
	if err != nil {
		return err
	}
	for _, it := range items {
		it.condemned = &killsError{r.RetryCount}
		it.past.Failures = int(r.RetryCount)
	}
	s.admit(l, items)
	return nil
}

// hold takes an item in hand without queueing it.
func (s *session) hold(it *item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	it.state = running
	it.cancel = func(error) {}
	it.lane.held[it.position] = it
}

// withdraw has nothing in hand any more: handlers under way end and are acknowledged, everything else is lent to whoever wants it. It
// reports whether it came to that.
func (s *session) withdraw(ctx context.Context) (away []*item, alone bool) {
	s.mu.Lock()
	s.paused = true
	s.mu.Unlock()
	quiet := func() bool {
		if s.busy > 0 {
			return false
		}
		for _, l := range s.lanes {
			if len(l.acks) > 0 {
				return false
			}
		}
		return true
	}
	away = []*item{}
	if !s.await(ctx, s.timeout+handlersGrace, quiet) {
		if ctx.Err() == nil {
			s.log.WarnContext(ctx, "a message that may kill its process has to wait: handlers or acknowledgements have not come to an end",
				"after", s.timeout+handlersGrace)
		}
		return away, false
	}
	for _, l := range s.lanes {
		items := s.inHand(l, func(it *item) bool {
			it.lent = it.state == waiting
			return it.lent
		})
		away = append(away, items...)
		if err := s.own(ctx, l, items, s.claimAfter, -1); err != nil {
			s.outages.begin(ctx, l, "lend", err)
			return away, false
		}
	}
	return away, true
}

// resume takes back what nobody has taken meanwhile, and goes on.
func (s *session) resume(ctx context.Context, away []*item) {
	for _, l := range s.lanes {
		var items []*item
		for _, it := range away {
			if it.lane == l {
				items = append(items, it)
			}
		}
		if err := s.own(context.WithoutCancel(ctx), l, items, 0, 1); err != nil {
			s.outages.begin(ctx, l, "take back", err) // they are renewed with everything else that is in hand
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

// resting are suspects that were put back until their next attempt, by position. Others may take them then, too.
type resting map[string]rest

type rest struct {
	until    time.Time // zero: it is over
	noted    time.Time
	setbacks int
}

// restMemory is for how long it is known how often a suspect had a setback.
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
