package redisconsumer

import (
	"context"
	"time"

	"github.com/gorm-fanout/fanout/inbox"
)

// try runs one attempt at a message that is alone.
func (s *session) try(ctx context.Context, it *item) error {
	st := it.stream
	if err := s.own(ctx, st, []*item{it}, 0, 1); err != nil { // now it is charged with it
		return s.letGo(it, err)
	}
	s.mu.Lock()
	ours := it.state == running
	working, cancel := context.WithCancelCause(s.work)
	defer cancel(nil)
	it.cancel = cancel
	it.message.Deliveries = int(it.count)
	s.mu.Unlock()
	if !ours {
		return s.letGo(it, nil)
	}
	if it.abandoned == nil {
		it.past = inbox.Past{Failures: int(it.count) - 1, Setbacks: st.rest[it.position].setbacks}
		a := s.attemptAlone(ctx, working, it)
		if a == nil {
			return nil // it is still claimed, and is taken over by another when it was idle for long enough
		}
		s.mu.Lock()
		st.counters.attempt(a)
		switch {
		case it.state == lost:
			s.forget(it)
			s.mu.Unlock()
			return nil
		case a.Done():
			s.finished(it)
			s.mu.Unlock()
			s.await(ctx, s.claimAfter, func() bool { return st.items[it.position] == nil }) // the next one is to be alone, too
			return nil
		}
		s.mu.Unlock()
		if !a.Abandon {
			charge := int64(0)
			if a.Failures == it.past.Failures {
				charge = -1 // nothing is wrong with the message
			}
			it.past = a.Past
			return s.putBack(ctx, it, a.Retry, charge)
		}
		it.past, it.abandoned = a.Past, a.Err
	}
	s.forward(working, it) //nolint:contextcheck // as above
	s.mu.Lock()
	unforwarded := st.items[it.position] == it
	s.mu.Unlock()
	if unforwarded {
		return s.putBack(ctx, it, pauseAfter(1), 0)
	}
	return nil
}

// attemptAlone runs the handler of an isolated message. A stop does not wait for it for ever: the
// answer is nil where the handler goes on although its context has ended. It counts as being under
// way, like every other.
func (s *session) attemptAlone(ctx, working context.Context, it *item) *inbox.Attempt {
	message, past, attempts := it.message, it.past, make(chan *inbox.Attempt, 1)
	s.mu.Lock()
	s.underWay(1)
	s.mu.Unlock()
	go func() {
		a := s.runner.Attempt(working, message, past)
		s.mu.Lock()
		s.underWay(-1) // before the answer: others are started after it
		s.mu.Unlock()
		attempts <- a
	}()
	late := time.NewTimer(s.timeout + handlersGrace)
	defer late.Stop()
	for {
		select {
		case a := <-attempts:
			return a
		case <-late.C:
			s.log.WarnContext(ctx, "isolated message overdue",
				"stream", it.stream.name, "entry", it.position, "after", s.timeout+handlersGrace)
		case <-ctx.Done():
			last := time.NewTimer(s.shutdown + handlersGrace)
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
func (s *session) putBack(ctx context.Context, it *item, pause time.Duration, charge int64) error {
	now := time.Now()
	it.stream.rest[it.position] = rest{now.Add(pause), now, it.past.Setbacks}
	err := s.own(context.WithoutCancel(ctx), it.stream, []*item{it}, max(s.claimAfter-pause, 0), charge)
	return s.letGo(it, err)
}

// letGo lets go of an isolated message without doing anything to its entry.
func (s *session) letGo(it *item, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(it)
	return err
}
