package tenants

import (
	"context"
	"math"
	"time"

	"github.com/gorm-fanout/fanout/internal/failure"
)

// tenant has a goroutine of its own, which visits it in turn.
type tenant[T comparable] struct {
	name     string
	settings T
	phase    float64            // where in the interval its visits are, from 0 to 1
	cancel   context.CancelFunc // ends all of it
	ended    chan struct{}      // closed when it has
	wake     chan struct{}      // rows were committed: no need to ask

	// Guarded by the supervisor's lock:
	session  Session // while it is open
	closing  bool    // the session is about to be closed
	failures int     // turns in a row
	waits    bool    // for a place among those that are awake

	// Of its goroutine:
	place   *ticket // among those that are awake; nil: it wants none
	offered bool    // one that is awake knows that this one waits
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
	since := now.Sub(began) - time.Duration(phase*float64(every))
	return now.Add(every - (since%every+every)%every)
}

// keep gives a tenant its turns until ctx ends. before is who had its name, and must have ended.
func (s *Supervisor[T]) keep(ctx context.Context, t, before *tenant[T]) {
	defer s.end(t)
	if before != nil {
		<-before.ended
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		var (
			granted <-chan struct{}
			wanted  chan<- struct{}
			wake    = t.wake
		)
		if t.place != nil { // commits give one that waits no turn
			granted, wake = t.place.granted, nil
			if !t.offered {
				wanted = s.wanted
			}
		}
		woken := false
		select {
		case <-ctx.Done():
			continue
		case wanted <- struct{}{}:
			t.offered = true
			continue
		case <-timer.C:
		case <-wake:
			woken = true
		case <-granted:
		}
		err := s.turn(ctx, t, woken || t.committed())
		if ctx.Err() == nil {
			timer.Reset(time.Until(s.note(ctx, t, err)))
		}
	}
	s.givePlace(t)
	if !t.beat.IsZero() && t.failures == 0 { // else its database may not answer
		s.leave(ctx, t)
	}
}

// committed reports whether rows were committed since it was asked the last time.
func (t *tenant[T]) committed() bool {
	select {
	case <-t.wake:
		return true
	default:
		return false
	}
}

// end is for the next one with this name.
func (s *Supervisor[T]) end(t *tenant[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending[t.name] == t {
		delete(s.ending, t.name)
	}
	close(t.ended)
}

// note keeps the result of a turn, and returns when the next one is due.
func (s *Supervisor[T]) note(ctx context.Context, t *tenant[T], err error) time.Time {
	now := time.Now()
	if err != nil {
		s.givePlace(t)
		if t.failing.Failed(err) {
			cause, remedy := s.cfg.Remedy(t.name, err)
			s.cfg.Log.ErrorContext(ctx, "tenant not opened", "tenant", t.name, "effect", "it is tried again, within "+
				(longestBackoff*s.cfg.VisitEvery).String()+"; the others are not held up", "remedy", remedy, "error", cause)
		}
		now = now.Add(s.cfg.VisitEvery * time.Duration(min(longestBackoff, 1<<min(t.failures, 8))-1))
	} else {
		s.works(ctx, t)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.failures++; err == nil {
		t.failures = 0
	}
	return slot(s.began, now, t.phase, s.cfg.VisitEvery)
}

func (s *Supervisor[T]) works(ctx context.Context, t *tenant[T]) {
	if _, was := t.failing.Works(); was {
		s.cfg.Log.InfoContext(ctx, "tenant answers again", "tenant", t.name)
	}
}

// takePlace reports whether a tenant has a place among those that are awake; else it waits for one. While
// any wait, those that have been awake for an interval between visits give theirs up, and wait behind them.
func (s *Supervisor[T]) takePlace(ctx context.Context, t *tenant[T]) bool {
	if t.place == nil {
		t.place, t.offered = s.awake.join(0), false
	}
	taken := false
	select {
	case <-t.place.granted:
		taken = true
	default:
	}
	waiting, now := s.awake.length(), time.Now()
	s.mu.Lock()
	t.waits = !taken
	warn := !taken && now.Sub(s.warned) >= pauseWarning
	if warn {
		s.warned = now
	}
	s.mu.Unlock()
	if warn {
		s.cfg.Log.WarnContext(ctx, "tenants take turns", "waiting", waiting, "awake", s.cfg.MaxAwake, "effect", "messages of those that wait are late",
			"remedy", "raise tenants.max_awake as far as the databases have connections, or give each of several relays a part of the list")
	}
	return taken
}

// givePlace is for a tenant that has nothing to do any more.
func (s *Supervisor[T]) givePlace(t *tenant[T]) {
	if t.place != nil {
		s.awake.leave(t.place)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t.place, t.waits = nil, false
}
