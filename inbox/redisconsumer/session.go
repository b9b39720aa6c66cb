package redisconsumer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gorm-fanout/fanout/inbox"
)

// handlersGrace is how long handlers whose contexts were cancelled are waited for; flushGrace
// bounds the last calls of a stop.
const (
	handlersGrace = 5 * time.Second
	flushGrace    = 5 * time.Second
)

// A session is one run of a consumer.
type session struct {
	*Consumer

	// isolation is locked, shared, while entries are claimed, and exclusively while one that may
	// have crashed a process is handled alone.
	isolation sync.RWMutex

	mu      sync.Mutex
	queues  queues
	busy    int           // handlers under way
	stuck   int           // of these, those that go on although their contexts have ended
	paused  bool          // no handler is started
	changed chan struct{} // closed at the next change, where somebody waits for one

	wake chan struct{} // there may be something to handle

	work   context.Context //nolint:containedctx // of all handlers
	cancel context.CancelCauseFunc
}

func newSession(c *Consumer) *session {
	s := &session{Consumer: c, wake: make(chan struct{}, 1)}
	for _, st := range c.streams {
		st.aside, st.full = 0, false
		st.idle.Store(false)
		st.items, st.acks, st.mustRecover, st.ready, st.start = map[string]*item{}, nil, c.named, false, ""
		st.rest = resting{}
		st.room, st.toAck = make(chan struct{}, 1), make(chan struct{}, 1)
	}
	return s
}

// run runs the goroutines of a session and stops them in order.
func (s *session) run(ctx context.Context) error {
	last := context.WithoutCancel(ctx) // of everything that goes on after the stop has begun
	s.work, s.cancel = context.WithCancelCause(last)
	defer s.cancel(nil)

	var takers, keepers sync.WaitGroup
	for _, st := range s.streams {
		takers.Go(func() { s.take(ctx, st) })
	}
	takers.Go(func() { s.dispatch(ctx) })
	keeping, endKeeping := context.WithCancel(last)
	defer endKeeping()
	for _, st := range s.streams {
		keepers.Go(func() { s.renew(keeping, st) })
		keepers.Go(func() { s.acknowledge(keeping, st) })
	}

	<-ctx.Done()
	over := time.Now().Add(s.shutdown)
	timer := time.AfterFunc(s.shutdown, func() { s.cancel(errStopping) })
	defer timer.Stop()
	takers.Wait()
	s.giveBack(last, idle)
	err := s.awaitHandlers(last, time.Until(over)+handlersGrace)
	endKeeping()
	keepers.Wait() // the acknowledgements have ended, too
	if err == nil {
		s.giveBack(last, everything)
		s.leave(last)
	}
	return err
}

// awaitHandlers waits for the handlers under way; their contexts were cancelled some time before
// patience is over.
func (s *session) awaitHandlers(ctx context.Context, patience time.Duration) error {
	if s.await(ctx, patience, func() bool { return s.busy == 0 }) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Errorf("redisconsumer: run: %d handlers go on although their contexts were cancelled: end a handler when its context has ended", s.busy)
}

// dispatch starts handlers until ctx ends.
func (s *session) dispatch(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		pause := time.Hour
		now := time.Now()
		s.mu.Lock()
		for !s.paused && s.hasWorker() {
			it := s.queues.next(now)
			if it == nil {
				break
			}
			s.begin(it) //nolint:contextcheck // handlers outlive ctx: a stop waits for them
		}
		if due, ok := s.queues.due(); ok && !s.paused && s.hasWorker() {
			pause = max(due.Sub(now), 0)
		}
		s.mu.Unlock()
		timer.Reset(pause)
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// begin starts an item's handler. The lock is held.
func (s *session) begin(it *item) {
	ctx, cancel := context.WithCancelCause(s.work)
	s.underWay(1)
	it.state, it.cancel = running, cancel
	go func() {
		defer cancel(nil)
		s.handle(ctx, it)
		s.mu.Lock()
		s.underWay(-1)
		s.mu.Unlock()
		nudge(s.wake)
	}()
}

// hasWorker reports whether another handler may be started. Those that go on although their
// contexts have ended are replaced, as many of them as there are workers. The lock is held.
func (s *session) hasWorker() bool { return s.busy-min(s.stuck, s.workers) < s.workers }

// overdue counts handlers that go on although their contexts have ended.
func (s *session) overdue(goesOn bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !goesOn {
		s.stuck--
		return
	}
	if s.stuck++; s.stuck == 2*s.workers {
		s.log.ErrorContext(s.work, "all workers blocked by overdue handlers",
			"handlers", s.stuck)
	}
	nudge(s.wake)
}

// underWay counts handlers, for the session and beyond its end. The lock is held.
func (s *session) underWay(change int) {
	s.busy += change
	s.handlers.Add(int64(change))
	s.tell()
}

// handle makes one attempt at an item.
func (s *session) handle(ctx context.Context, it *item) {
	if it.aside && !s.fetch(ctx, it) {
		return
	}
	if it.abandoned != nil {
		s.forward(ctx, it)
		return
	}
	runner := s.runner
	runner.Overdue = s.overdue
	a := runner.Attempt(ctx, it.message, it.past)
	it.stream.counters.attempt(a)
	if a.Abandon {
		it.past, it.abandoned = a.Past, a.Err
		s.forward(ctx, it)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case it.state == lost:
		s.forget(it)
	case a.Done():
		s.finished(it)
	default:
		it.past, it.state = a.Past, waiting
		s.queues.again(it, time.Now().Add(a.Retry))
	}
}

// finished hands an item over to be acknowledged; its key goes on. The lock is held.
func (s *session) finished(it *item) {
	it.state = handled
	s.queues.finish(it)
	it.message = nil
	it.stream.acks = append(it.stream.acks, it)
	nudge(it.stream.toAck)
}

// forget lets go of an item. The lock is held.
func (s *session) forget(it *item) {
	s.queues.finish(it)
	if it.stream.items[it.position] == it {
		delete(it.stream.items, it.position)
		if it.aside {
			it.stream.aside--
		}
	}
	it.stream.count()
	nudge(it.stream.room)
	s.tell()
}

// admit claims items. What is claimed already is delivered again after its group was deleted: the
// one that is there goes on, under the new delivery.
func (s *session) admit(st *stream, items []*item) {
	s.mu.Lock()
	for _, it := range items {
		if there := st.items[it.position]; there != nil && there.state != lost {
			there.count, there.gone = it.count, false
			continue
		}
		st.items[it.position] = it
		s.queues.add(it)
	}
	st.count()
	s.mu.Unlock()
	nudge(s.wake)
}

// surrender is what becomes of an item that another consumer has taken over: its handler is told,
// and nothing is done to the entry.
func (s *session) surrender(it *item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if it.stream.items[it.position] != it || it.state == handled || it.state == lost {
		return
	}
	it.stream.unsure.Store(true)
	it.stream.counters.lost.Add(1)
	s.log.WarnContext(s.work, "message taken over by another consumer", "stream", it.stream.name, "entry", it.position,
		"handler_under_way", it.state == running)
	if it.state == running {
		it.state = lost
		it.cancel(errLost) // its goroutine forgets it
		return
	}
	it.state = lost
	s.forget(it)
}

// await waits until holds, which is called with the lock held; at most for so long.
func (s *session) await(ctx context.Context, patience time.Duration, holds func() bool) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		s.mu.Lock()
		if holds() {
			s.mu.Unlock()
			return true
		}
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// tell wakes up who awaits something. The lock is held.
func (s *session) tell() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
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
