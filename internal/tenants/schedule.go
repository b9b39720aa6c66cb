package tenants

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/gorm-fanout/fanout/internal/failure"
)

// What a tenant does.
type state int

const (
	idle state = iota // it waits for its next turn
	busy              // it has its turn: it is visited or opened
	open              // it has a session
)

// tenant is guarded by the supervisor's lock, but for what belongs to its turn: a tenant has one at a
// time.
type tenant[T comparable] struct {
	name     string
	settings T
	phase    float64 // where in the interval its visits are, from 0 to 1

	state    state
	due      time.Time // of the next turn
	woken    bool      // rows were committed: no need to ask
	gone     bool      // it is to be forgotten
	next     *tenant[T]
	cancel   context.CancelFunc // ends what it does; nil while it is idle
	session  Session            // while it is open
	closing  bool               // the session is about to be closed
	failures int                // turns in a row
	waits    uint64             // for a place among those that are awake, in this order; 0: it does not
	placed   bool               // it has one
	awoke    time.Time          // when its session began
	yield    chan struct{}      // closed when the session is to give its place up

	// Of its turns:
	checked bool
	beat    time.Time // the last heartbeat of its sleep; zero: none is to be taken back
	purge   time.Time // when the next one is due
	failing failure.Standing
}

// phase spreads any number of tenants evenly, whichever were there first: the golden ratio's multiples
// leave no gap much wider than the others. Source: Knuth, The Art of Computer Programming 3, 6.4.
func phase(n int) float64 {
	_, fraction := math.Modf(float64(n) * (math.Sqrt(5) - 1) / 2)
	return fraction
}

// slot is the next moment after now at which a tenant of this phase is visited.
func slot(began, now time.Time, phase float64, every time.Duration) time.Time {
	first := began.Add(time.Duration(phase * float64(every)))
	rounds := math.Floor(float64(now.Sub(first))/float64(every)) + 1
	next := first.Add(time.Duration(rounds * float64(every)))
	if !next.After(now) { // a matter of rounding
		next = next.Add(every)
	}
	return next
}

// schedule gives turns until ctx ends.
func (s *Supervisor[T]) schedule(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		case <-timer.C:
		}
		timer.Reset(s.launch(ctx))
	}
}

// launch gives turns to tenants that are due, as long as there are places, and returns the time until
// the next one is due. Those that failed have a quarter of the places, so that the time that they may
// take is not that of the others; of them, those go first that have failed least.
func (s *Supervisor[T]) launch(ctx context.Context) (wait time.Duration) {
	var lines news
	defer func() { lines.write() }() // when the lock is free
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	wait = s.relieve(ctx, now, &lines)
	var due []*tenant[T]
	for _, t := range s.tenants {
		switch {
		case t.state != idle:
		case !t.due.After(now):
			due = append(due, t)
		default:
			wait = min(wait, t.due.Sub(now))
		}
	}
	slices.SortFunc(due, func(a, b *tenant[T]) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.failures, b.failures), a.due.Compare(b.due))
	})
	for _, t := range due {
		failing := t.failures > 0
		if s.busy >= s.cfg.Visits || failing && s.failing >= max(1, s.cfg.Visits/4) {
			continue // the end of a turn launches again
		}
		s.busy++
		if failing {
			s.failing++
		}
		s.begin(ctx, t, failing)
	}
	return wait
}

// rank puts those first for which rows are known to wait, and those last that may not answer.
func (t *tenant[T]) rank() int {
	switch {
	case t.failures > 0:
		return 2
	case t.woken, t.waiting():
		return 0
	default:
		return 1
	}
}

// begin starts a turn.
func (s *Supervisor[T]) begin(parent context.Context, t *tenant[T], failing bool) {
	ctx, cancel := context.WithCancel(parent)
	woken, leaving := t.woken, t.gone
	t.state, t.cancel, t.woken = busy, cancel, false
	s.group.Go(func() {
		defer cancel()
		var (
			session Session
			err     error
		)
		if leaving {
			s.leave(ctx, t)
		} else {
			session, err = s.turn(ctx, t, woken)
		}
		s.mu.Lock()
		s.busy--
		if failing {
			s.failing--
		}
		if session != nil {
			t.state, t.session, t.failures = open, session, 0
			t.awoke, t.yield = time.Now(), make(chan struct{})
			t.woken = false // its first poll finds what was committed until now
		}
		s.mu.Unlock()
		s.announce()
		if session != nil {
			err = s.live(ctx, t, session)
		}
		s.end(parent, t, err)
	})
}

// end notes the result of a turn, and says when the next one is.
func (s *Supervisor[T]) end(ctx context.Context, t *tenant[T], err error) {
	var lines news
	s.mu.Lock()
	t.state, t.cancel, t.session, t.closing = idle, nil, nil, false
	if t.placed {
		s.awake--
		t.placed = false
	}
	now := time.Now()
	switch {
	case t.gone && !t.beat.IsZero(): // another turn, to leave
		t.due = now
	case t.gone:
		s.forget(t)
	case ctx.Err() != nil: // there are no more turns
	case err != nil:
		backoff := min(longestBackoff, 1<<min(t.failures, 8)) - 1
		t.failures++
		t.waits = 0
		t.due = slot(s.began, now.Add(s.cfg.VisitEvery*time.Duration(backoff)), t.phase, s.cfg.VisitEvery)
		if t.failing.Failed(err) {
			lines.add(func() { s.report(ctx, t.name, err) })
		}
	default:
		if _, was := t.failing.Works(); was {
			lines.add(func() { s.answers(ctx, t.name) })
		}
		t.failures = 0
		t.due = slot(s.began, now, t.phase, s.cfg.VisitEvery)
		if t.woken && !t.waiting() {
			t.due = now
		}
	}
	s.callNext(now)
	s.mu.Unlock()
	lines.write()
	s.announce()
}

func (s *Supervisor[T]) report(ctx context.Context, name string, err error) {
	cause, remedy := s.cfg.Remedy(name, err)
	s.cfg.Log.ErrorContext(ctx, "tenant not opened", "tenant", name, "effect", "it is tried again, within "+
		(longestBackoff*s.cfg.VisitEvery).String()+"; the others are not held up", "remedy", remedy, "error", cause)
}

func (s *Supervisor[T]) answers(ctx context.Context, name string) {
	s.cfg.Log.InfoContext(ctx, "tenant answers again", "tenant", name)
}
