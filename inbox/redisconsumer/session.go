package redisconsumer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorm-fanout/fanout/inbox"
)

// handlersGrace is how long handlers whose contexts were cancelled are waited for; flushGrace
// bounds the last calls of a stop.
const (
	handlersGrace = 5 * time.Second
	flushGrace    = 5 * time.Second
)

// An activity is one run of a consumer. It starts the handlers of what its parts have claimed.
type activity struct {
	c      *Consumer
	claims *claims
	keeper *keeper
	taker  *taker
}

func newSession(c *Consumer) *activity {
	for _, st := range c.streams {
		st.unloaded.Store(0)
		st.held.Store(new(atomic.Int64))
		st.full, st.largest = false, c.expected()
		st.idle.Store(false)
		st.items, st.acks, st.mustRecover, st.ready, st.start = map[string]*item{}, nil, c.named, false, ""
		st.rest = resting{}
		st.room, st.toAck = make(chan struct{}, 1), make(chan struct{}, 1)
	}
	s := &activity{c: c, claims: &claims{c: c, wake: make(chan struct{}, 1)}}
	s.keeper = &keeper{c: c, claims: s.claims}
	s.taker = &taker{c: c, claims: s.claims, keeper: s.keeper, isolation: &isolation{c: c, claims: s.claims, keeper: s.keeper}}
	return s
}

// run runs the goroutines of a session and stops them in order.
func (s *activity) run(ctx context.Context) error {
	last := context.WithoutCancel(ctx) // of everything that goes on after the stop has begun
	s.claims.work, s.claims.cancel = context.WithCancelCause(last)
	defer s.claims.cancel(nil)

	var takers, keepers sync.WaitGroup
	for _, st := range s.c.streams {
		takers.Go(func() { s.taker.take(ctx, st) })
	}
	takers.Go(func() { s.dispatch(ctx) })
	keeping, endKeeping := context.WithCancel(last)
	defer endKeeping()
	for _, st := range s.c.streams {
		keepers.Go(func() { s.keeper.renew(keeping, st) })
		keepers.Go(func() { s.keeper.acknowledge(keeping, st) })
	}

	<-ctx.Done()
	over := time.Now().Add(s.c.shutdown)
	timer := time.AfterFunc(s.c.shutdown, func() { s.claims.cancel(errStopping) })
	defer timer.Stop()
	takers.Wait()
	s.keeper.release(last, idle)
	err := s.awaitHandlers(last, time.Until(over)+handlersGrace)
	endKeeping()
	keepers.Wait() // the acknowledgements have ended, too
	if err == nil {
		s.keeper.release(last, everything)
		s.keeper.leave(last)
	}
	return err
}

// awaitHandlers waits for the handlers under way; their contexts were cancelled some time before
// patience is over.
func (s *activity) awaitHandlers(ctx context.Context, patience time.Duration) error {
	if s.claims.await(ctx, patience, func() bool { return s.claims.busy == 0 }) {
		return nil
	}
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	return fmt.Errorf("redisconsumer: run: %d handlers go on although their contexts were cancelled: end a handler when its context has ended", s.claims.busy)
}

// dispatch starts handlers until ctx ends.
func (s *activity) dispatch(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		pause := time.Hour
		now := time.Now()
		s.claims.mu.Lock()
		for !s.claims.paused && s.claims.hasWorker() {
			it := s.claims.queues.next(now)
			if it == nil {
				break
			}
			s.begin(it) //nolint:contextcheck // handlers outlive ctx: a stop waits for them
		}
		if due, ok := s.claims.queues.due(); ok && !s.claims.paused && s.claims.hasWorker() {
			pause = max(due.Sub(now), 0)
		}
		s.claims.mu.Unlock()
		timer.Reset(pause)
		select {
		case <-ctx.Done():
		case <-s.claims.wake:
		case <-timer.C:
		}
	}
}

// begin starts an item's handler. The lock is held.
func (s *activity) begin(it *item) {
	ctx, cancel := context.WithCancelCause(s.claims.work)
	s.claims.underWay(1)
	it.state, it.cancel = running, cancel
	go func() {
		defer cancel(nil)
		s.handle(ctx, it)
		s.claims.handlerEnded()
		nudge(s.claims.wake)
	}()
}

// handle makes one attempt at an item.
func (s *activity) handle(ctx context.Context, it *item) {
	if it.unloaded && !s.reload(ctx, it) {
		return
	}
	if it.abandoned != nil {
		s.keeper.forward(ctx, it)
		return
	}
	runner := s.c.runner
	runner.Overdue = s.claims.overdue
	a := runner.Attempt(ctx, it.message, it.past)
	it.stream.counters.attempt(a)
	if a.Abandon {
		it.past, it.abandoned = a.Past, a.Err
		s.keeper.forward(ctx, it)
		return
	}
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	switch {
	case it.state == lost:
		s.claims.forget(it)
	case a.Done():
		s.claims.finished(it)
	default:
		it.past, it.state = a.Past, waiting
		s.claims.queues.again(it, time.Now().Add(a.Retry))
	}
}

// nudge leaves a sign in a channel with room for one.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pauseAfter is the pause after the n-th failure in a row of something that is done at the server.
func pauseAfter(n int) time.Duration {
	return inbox.Retry{BaseDelay: 50 * time.Millisecond, MaxDelay: 5 * time.Second}.Delay(n)
}

// sleep waits; it reports whether ctx has not ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
