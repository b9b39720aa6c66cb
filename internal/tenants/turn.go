package tenants

import (
	"context"
	"errors"
	"sync"
	"time"
)

// turn visits a tenant, unless rows are known to wait, and keeps it open while it has something to do, and
// a place. Tenants that failed have a quarter of the visits, so that the time that they may take is not that
// of the others; of them, those go first that have failed least.
func (s *Supervisor[T]) turn(ctx context.Context, t *tenant[T], woken bool) error {
	session, err := s.begin(ctx, t, woken)
	if session == nil {
		return err
	}
	return s.live(ctx, t, session)
}

// begin visits a tenant, and opens it where it has something to do and there is a place for it. Else the
// session is nil.
func (s *Supervisor[T]) begin(ctx context.Context, t *tenant[T], woken bool) (Session, error) {
	rank := 1
	switch {
	case t.failures > 0:
		rank = 2
		leave, entered := s.failing.enter(ctx, t.failures)
		if !entered {
			return nil, ctx.Err()
		}
		defer leave()
	case woken, t.place != nil:
		rank = 0
	}
	leave, entered := s.visits.enter(ctx, rank)
	if !entered {
		return nil, ctx.Err()
	}
	defer leave()
	if !woken || !t.checked || !s.takePlace(ctx, t) {
		if awake, err := s.visit(ctx, t, woken); err != nil || !awake {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	session, err := s.cfg.Open(ctx, t.name, t.settings)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t.session, t.closing, t.failures = session, false, 0
	t.committed() // its first poll finds what was committed until now
	return session, nil
}

// visit asks whether there is something to do, and then has the tenant opened, if there is a place for it.
// It does what is due in one that sleeps.
func (s *Supervisor[T]) visit(ctx context.Context, t *tenant[T], woken bool) (awake bool, err error) {
	bounded, cancel := context.WithTimeout(ctx, visitTime)
	defer cancel()
	visitor, err := s.cfg.Visit(bounded, t.name, t.settings)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, visitor.Close()) }()
	if !t.checked {
		if err := visitor.Check(bounded); err != nil {
			return false, err
		}
		t.checked = true
	}
	switch work, err := visitor.Work(bounded); {
	case err != nil:
		return false, err
	case !work && !woken:
		s.givePlace(t)
	case s.takePlace(ctx, t):
		return true, nil
	}
	if now := time.Now(); t.beat.IsZero() || now.Sub(t.beat)+s.cfg.VisitEvery > oldestBeat { // it would be too old at the next visit
		if err := visitor.Heartbeat(bounded); err != nil {
			return false, err
		}
		t.beat = now
	}
	if !time.Now().Before(t.purge) {
		s.purgeAsleep(ctx, t, visitor)
	}
	return false, nil
}

// purgeAsleep removes what is old during a visit. It has little time, since no message of the tenant is
// delivered meanwhile, and others wait for its place; what it leaves is for the next visit.
func (s *Supervisor[T]) purgeAsleep(ctx context.Context, t *tenant[T], visitor Visitor) {
	ctx, cancel := context.WithTimeout(ctx, purgeTime)
	defer cancel()
	visitor.Purge(ctx)
	if ctx.Err() == nil {
		t.purge = time.Now().Add(s.cfg.PurgeEvery)
	}
}

// leave takes the heartbeat of a tenant that sleeps back. Nothing depends on it: its database may be
// gone.
func (s *Supervisor[T]) leave(ctx context.Context, t *tenant[T]) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
	defer cancel()
	done, entered := s.visits.enter(ctx, 0)
	if !entered {
		return
	}
	defer done()
	ctx, cancel = context.WithTimeout(ctx, visitTime)
	defer cancel()
	visitor, err := s.cfg.Visit(ctx, t.name, t.settings)
	if err == nil {
		err = errors.Join(visitor.Leave(ctx), visitor.Close())
	}
	if err != nil {
		s.cfg.Log.DebugContext(ctx, "heartbeat not removed", "tenant", t.name, "error", err)
	}
}

// live runs a session until ctx ends or the tenant has had nothing to do for a while.
func (s *Supervisor[T]) live(ctx context.Context, t *tenant[T], session Session) (err error) {
	s.cfg.Log.DebugContext(ctx, "tenant awake", "tenant", t.name)
	s.works(ctx, t)
	running, stop := context.WithCancel(ctx)
	defer stop()
	t.beat = time.Time{} // the session has its own
	var beside sync.WaitGroup
	beside.Go(func() { s.purge(running, t, session) })
	ended := make(chan error, 1)
	go func() { ended <- session.Run(running) }()
	asleep, yields, err := s.untilIdle(ctx, t, session, ended)
	stop()
	if asleep {
		err = errors.Join(err, <-ended)
	}
	beside.Wait()
	if asleep && err == nil { // others are to know that a relay looks after it
		bounded, cancel := context.WithTimeout(ctx, visitTime)
		if err = session.Heartbeat(bounded); err == nil {
			t.beat = time.Now()
		}
		cancel()
	}
	s.cfg.Log.DebugContext(ctx, "tenant asleep", "tenant", t.name)
	err = errors.Join(err, session.Close())
	s.mu.Lock()
	t.session = nil
	s.mu.Unlock()
	s.givePlace(t)
	if yields && err == nil {
		s.takePlace(ctx, t)
	}
	return err
}

// untilIdle waits for the end of a session, until it has nothing to do, or until it is to give its place up.
func (s *Supervisor[T]) untilIdle(ctx context.Context, t *tenant[T], session Session, ended <-chan error) (asleep, yields bool, err error) {
	ticker := time.NewTicker(max(s.cfg.IdleAfter/activityChecks, time.Millisecond))
	defer ticker.Stop()
	var wanted <-chan struct{} // by those that wait
	turn := time.After(s.cfg.VisitEvery)
	since, seen := time.Now(), session.Activity()
	for {
		select {
		case err := <-ended:
			return false, false, err
		case <-turn:
			wanted = s.wanted
			continue
		case <-wanted:
			s.setClosing(t, true)
			return true, true, nil
		case <-ticker.C:
		}
		if now := session.Activity(); now != seen {
			since, seen = time.Now(), now
		}
		if time.Since(since) < s.cfg.IdleAfter {
			continue
		}
		s.setClosing(t, true) // who commits from now on finds a tenant that is to be woken
		work, err := s.look(ctx, session)
		if ctx.Err() != nil {
			return false, false, <-ended
		}
		if err != nil || !work {
			return true, false, err
		}
		since = time.Now()
		if s.setClosing(t, false) {
			session.Wake()
		}
	}
}

// look asks an open session whether there is work, for as long as a visit may take.
func (s *Supervisor[T]) look(ctx context.Context, session Session) (work bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, visitTime)
	defer cancel()
	return session.Work(ctx)
}

// setClosing reports whether rows were committed while it was set.
func (s *Supervisor[T]) setClosing(t *tenant[T], closing bool) (woken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.closing = closing
	return !closing && t.committed()
}

// purge removes what is old while a tenant is awake.
func (s *Supervisor[T]) purge(ctx context.Context, t *tenant[T], session Session) {
	timer := time.NewTimer(time.Until(t.purge))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if session.Purge(ctx); ctx.Err() != nil { // the next visit goes on
			return
		}
		t.purge = time.Now().Add(s.cfg.PurgeEvery)
		timer.Reset(s.cfg.PurgeEvery)
	}
}
