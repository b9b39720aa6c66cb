package consumer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/gorm-fanout/fanout/inbox"
)

// tellAgain is how often it is said of one message that it is held.
const tellAgain = time.Minute

// longest is a number of failures after which pauses do not grow any more.
const longest = 100

// work does with a message what is due.
func (s *Session) work(e *Entry) {
	if now := time.Now(); now.Before(e.due) {
		s.pause(e, e.due)
		return
	}
	if s.Load != nil && !s.load(e) {
		return
	}
	switch {
	case e.Why == nil && e.Broken == nil:
		s.attempt(e, s.Runner.Handler)
	case e.Why == nil:
		s.unreadable(e)
	default:
		s.putAway(e)
	}
}

// load brings an entry back that was unloaded. It reports whether the entry is there.
func (s *Session) load(e *Entry) bool {
	err := s.Load(s.handling, e)
	switch {
	case err == nil:
		e.loads = 0
	case errors.Is(err, ErrGone):
		s.confirm(e)
	default:
		e.loads++
		s.pause(e, time.Now().Add(PauseAfter(e.loads)))
	}
	return err == nil
}

// attempt runs the handler.
func (s *Session) attempt(e *Entry, handler inbox.Handler) {
	ctx, cancel := context.WithCancelCause(s.handling)
	defer cancel(nil)
	s.mu.Lock()
	e.cancel = cancel
	if e.over {
		cancel(errLost)
	}
	s.mu.Unlock()
	runner := s.Runner
	runner.Handler, runner.Overdue, runner.QuietDeadLetters = handler, s.overdue, e.Broken != nil // see reportKept
	a := runner.Attempt(ctx, e.Message, e.Past)
	if a.Done() {
		s.Counts.outcome(a.Outcome)
		s.confirm(e)
		return
	}
	s.Counts.failed.Add(1)
	ours := s.learn(e, func() {
		e.Past = a.Past
		if a.Abandon {
			e.Why = a.Err
		}
	})
	switch {
	case !ours:
		s.nack(e)
	case a.Abandon:
		s.putAway(e)
	default:
		s.pause(e, time.Now().Add(a.Retry))
	}
}

// learn changes what is known of a message that is being handled. It is false where the message was lost meanwhile:
// what is known of it is remembered already.
func (s *Session) learn(e *Entry, change func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !e.over {
		change()
	}
	return !e.over
}

// overdue counts handlers that go on although their contexts have ended, and lets others take their
// place.
func (s *Session) overdue(goesOn bool) {
	s.mu.Lock()
	if goesOn {
		s.queues.stuck++
	} else {
		s.queues.stuck--
	}
	all := goesOn && s.queues.stuck == 2*s.Workers
	s.mu.Unlock()
	if all {
		s.Log.ErrorContext(s.handling, "all workers blocked by overdue handlers", "handlers", 2*s.Workers)
	}
	s.pump()
}

// putAway finds a place for a message that is abandoned: that for dead letters, else the broker's
// own policy, else none.
func (s *Session) putAway(e *Entry) {
	switch {
	case s.DeadLetter != nil:
		s.forward(e)
	case s.HandBack != nil && s.HandBack(e):
		s.handBack(e)
	default:
		s.hold(e)
	}
}

// forward puts a message among the dead letters and confirms it. Where that fails, it is tried
// again; the message stays claimed, and its key waits.
func (s *Session) forward(e *Entry) {
	err := s.DeadLetter(s.handling, e)
	if err == nil {
		s.Counts.forwarded.Add(1)
		s.Runner.Forwarded(s.handling, e.Message, e.Why)
		s.confirm(e)
		return
	}
	if !s.learn(e, func() { e.Past.Setbacks++ }) { // it was lost meanwhile
		s.nack(e)
		return
	}
	delay := s.Runner.Retry.Delay(e.Past.Setbacks)
	log := s.logOf(e)
	log.ErrorContext(s.handling, "dead letter not published", "retry_in", delay, "error", err)
	s.pause(e, time.Now().Add(delay))
}

// handBack returns a message to the broker until its dead letter policy takes it: at once when it
// is abandoned, more slowly when it comes again and again, as where the broker may not publish to
// the place that the policy names.
func (s *Session) handBack(e *Entry) {
	if e.returns > 0 && e.due.IsZero() {
		s.pause(e, time.Now().Add(s.Runner.Retry.Delay(e.returns)))
		return
	}
	s.learn(e, func() {
		e.returns++
		e.due = time.Time{}
	})
	s.nack(e)
}

// hold keeps a message for which there is no place, and tries it again now and then.
func (s *Session) hold(e *Entry) {
	now := time.Now()
	switch {
	case e.Broken != nil:
		s.reportKept(e, "held")
	case now.Sub(e.told) >= tellAgain:
		log := s.logOf(e)
		log.ErrorContext(s.handling, "message held without a place for dead letters", "error", e.Why)
		e.told = now
	}
	s.learn(e, func() {
		e.Why = nil // its handler may be fixed, or a place be found
		if !e.held {
			e.held = true
			s.Counts.held.Add(1)
		}
		if e.Broken != nil { // that it would be held was not known where its decoder was out, or it was to go elsewhere
			s.queues.part(e, "")
		}
	})
	s.pause(e, now.Add(s.Runner.Retry.Delay(longest)))
}

// pause lets a message wait until due, or gives it back where it may not stay so long.
func (s *Session) pause(e *Entry, due time.Time) {
	until := due
	s.mu.Lock()
	if !e.over {
		e.due = due
	}
	expires := !e.Expire.IsZero()
	if expires && e.Expire.Before(due) { // a copy that comes just now moves it
		until = e.Expire
	}
	if e.over || e.leaving || s.queues.stopping || expires && !e.Expire.After(time.Now()) {
		s.mu.Unlock()
		s.nack(e)
		return
	}
	s.queues.pause(e)
	e.timer = time.AfterFunc(time.Until(until), func() {
		s.mu.Lock()
		s.queues.wake(e)
		s.mu.Unlock()
		s.pump()
	})
	s.mu.Unlock()
}

// nack gives a message and those behind it back.
func (s *Session) nack(e *Entry) {
	s.mu.Lock()
	back := s.queues.release(e, time.Now())
	s.mu.Unlock()
	s.release(back)
}

// confirm confirms a message that is done with.
func (s *Session) confirm(e *Entry) {
	s.mu.Lock()
	back := s.queues.done(e)
	copies, over := e.copies, e.over
	e.over = true
	s.mu.Unlock()
	if !over { // else given back meanwhile: its handler took longer than could be waited for
		for _, d := range copies {
			d.Ack()
		}
		s.letGo(e)
	}
	s.release(back)
}

// release returns messages to the broker, which delivers them again, to this process or another.
func (s *Session) release(back []*Entry) {
	for _, e := range back {
		s.mu.Lock()
		if s.Recurs {
			s.memory.keep(e)
		}
		copies := e.copies
		if e.timer != nil {
			e.timer.Stop()
		}
		s.mu.Unlock()
		for _, d := range copies {
			s.Counts.nacked.Add(1)
			d.Nack()
		}
		s.letGo(e)
	}
}

// refuse gives a delivery back that was never claimed.
func (s *Session) refuse(d Delivery) {
	s.Counts.nacked.Add(1)
	d.Nack()
}

// letGo makes room.
func (s *Session) letGo(e *Entry) {
	if e.held {
		s.Counts.held.Add(-1)
	}
	if e.admitted {
		s.leave(int64(e.Bytes))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.settled != nil {
		close(e.settled)
	}
}

// AckFailed counts and logs a confirmation, or a return, that failed. It is none of the message's
// doing: it comes again.
func (s *Session) AckFailed(confirmation, position string, err error) {
	s.Counts.ackFailures.Add(1)
	s.Log.WarnContext(s.handling, "confirmation failed", "confirmation", confirmation, "position", position, "error", err)
}

// logOf is the log for lines about a message.
func (s *Session) logOf(e *Entry) *slog.Logger {
	m := e.Message
	return s.Log.With("message_id", shortened(m.ID), "type", shortened(m.Type), "position", m.Position, "ordering_key", shortened(m.OrderingKey), "attempts", e.Past.Failures)
}
