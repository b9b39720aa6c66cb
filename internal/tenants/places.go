package tenants

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// So many tenants are awake at a time. Those that wait for a place have the next ones in the order in
// which they began to wait; while any wait, those that have been awake for longest, and for an interval
// between visits at least, give their places up, and wait behind them.

// pauseWarning is the least time between two warnings that tenants wait.
const pauseWarning = 10 * time.Minute

// takePlace gives a tenant a place, unless those that wait before it need all that are free.
func (s *Supervisor[T]) takePlace(t *tenant[T]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.waits == 0 {
		s.queue(t)
	}
	free := s.cfg.MaxAwake - s.awake
	for _, other := range s.tenants {
		if other.waiting() && other.waits < t.waits {
			free--
		}
	}
	if free <= 0 {
		return false
	}
	s.awake++
	t.waits, t.placed = 0, true
	return true
}

// queue puts a tenant behind all that wait.
func (s *Supervisor[T]) queue(t *tenant[T]) {
	s.tickets++
	t.waits = s.tickets
}

// unqueue is for a tenant that has nothing to do any more.
func (s *Supervisor[T]) unqueue(t *tenant[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.waits = 0
}

// waiting reports whether a tenant waits for a place.
func (t *tenant[T]) waiting() bool { return t.waits > 0 && !t.placed && !t.gone }

// callNext gives turns to those for which places are free.
func (s *Supervisor[T]) callNext(now time.Time) {
	free := s.cfg.MaxAwake - s.awake
	if free <= 0 {
		return
	}
	var waiting []*tenant[T]
	for _, t := range s.tenants {
		if t.waiting() {
			waiting = append(waiting, t)
		}
	}
	slices.SortFunc(waiting, func(a, b *tenant[T]) int { return cmp.Compare(a.waits, b.waits) })
	for _, t := range waiting[:min(free, len(waiting))] {
		if t.state == idle && t.due.After(now) {
			t.due = now
		}
	}
}

// relieve has tenants give their places up while others wait for one, and returns the time until more of
// them may have to.
func (s *Supervisor[T]) relieve(ctx context.Context, now time.Time, lines *news) (wait time.Duration) {
	wait = s.cfg.VisitEvery
	wanted := s.awake - s.cfg.MaxAwake // places beside those that are free
	waiting := 0
	var awake []*tenant[T]
	for _, t := range s.tenants {
		switch {
		case t.waiting():
			waiting++
		case t.session != nil && t.waits > 0, t.closing: // it gives its place up
			wanted--
		case t.session != nil:
			awake = append(awake, t)
		}
	}
	if waiting == 0 {
		return wait
	}
	if now.Sub(s.warned) >= pauseWarning {
		s.warned = now
		lines.add(func() {
			s.cfg.Log.WarnContext(ctx, "tenants take turns", "waiting", waiting, "awake", s.cfg.MaxAwake, "effect", "messages of those that wait are late",
				"remedy", "raise tenants.max_awake as far as the databases have connections, or give each of several relays a part of the list")
		})
	}
	slices.SortFunc(awake, func(a, b *tenant[T]) int { return a.awoke.Compare(b.awoke) })
	for _, t := range awake[:max(0, min(wanted+waiting, len(awake)))] {
		if left := s.cfg.VisitEvery - now.Sub(t.awoke); left > 0 {
			return min(wait, left)
		}
		s.queue(t)
		close(t.yield)
	}
	return wait
}
