package pubsubconsumer

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"cloud.google.com/go/pubsub/v2"
)

// tellAgain is how often it is said of one message that it is held.
const tellAgain = time.Minute

// longest is a number of failures after which pauses do not grow any more.
const longest = 100

// work does with a message what is due.
func (s *session) work(e *entry) {
	now := time.Now()
	switch {
	case now.Before(e.due):
		s.pause(e, e.due)
	case e.why == nil && e.broken == nil:
		s.attempt(e)
	case e.why == nil:
		e.why = e.broken
		log := s.logOf(e)
		log.ErrorContext(s.handling, "message cannot be read", "error", e.broken)
		s.putAway(e)
	default:
		s.putAway(e)
	}
}

// attempt runs the handler.
func (s *session) attempt(e *entry) {
	runner := s.runner
	runner.Overdue = s.overdue
	a := runner.Attempt(s.handling, e.message, e.past)
	e.past = a.Past
	if a.Done() {
		s.counts.outcome(a.Outcome)
		s.confirm(e)
		return
	}
	s.counts.failed.Add(1)
	if !a.Abandon {
		s.pause(e, time.Now().Add(a.Retry))
		return
	}
	e.why = a.Err
	s.putAway(e)
}

// overdue counts handlers that go on although their contexts have ended, and lets others take their
// place.
func (s *session) overdue(goesOn bool) {
	s.mu.Lock()
	if goesOn {
		s.queues.stuck++
	} else {
		s.queues.stuck--
	}
	all := goesOn && s.queues.stuck == 2*s.options.workers
	s.mu.Unlock()
	if all {
		s.log.ErrorContext(s.handling, "all workers blocked by overdue handlers",
			"handlers", 2*s.options.workers)
	}
	s.pump()
}

// putAway finds a place for a message that is abandoned: the topic of dead letters, else Pub/Sub's
// own policy, else none.
func (s *session) putAway(e *entry) {
	switch {
	case s.options.deadLettered:
		s.deadLetter(e)
	case e.message.Deliveries > 0: // there is a dead letter policy: only then Pub/Sub counts
		s.handBack(e)
	default:
		s.hold(e)
	}
}

// handBack returns a message to Pub/Sub until its dead letter policy takes it: at once when it is
// abandoned, more slowly when it comes again and again, as where Pub/Sub lacks the permission to
// publish to the topic of the policy.
func (s *session) handBack(e *entry) {
	if e.returns > 0 && e.due.IsZero() {
		e.due = time.Now().Add(s.options.retry.Delay(e.returns))
		s.pause(e, e.due)
		return
	}
	e.returns++
	e.due = time.Time{}
	s.nack(e)
}

// hold keeps a message that nobody takes, and tries it again now and then.
func (s *session) hold(e *entry) {
	now := time.Now()
	if now.Sub(e.told) >= tellAgain {
		log := s.logOf(e)
		log.ErrorContext(s.handling, "message held without a place for dead letters", "error", e.why)
		e.told = now
	}
	if e.broken == nil {
		e.why = nil // its handler may be mended
	}
	if !e.held {
		e.held = true
		s.counts.held.Add(1)
	}
	s.pause(e, now.Add(s.options.retry.Delay(longest)))
}

// pause lets a message wait until due, or gives it back where its lease ends before.
func (s *session) pause(e *entry, due time.Time) {
	e.due = due
	until := due
	s.mu.Lock()
	if e.expire.Before(due) { // a copy that comes just now moves it
		until = e.expire
	}
	if s.queues.stopping || !e.expire.After(time.Now()) {
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
func (s *session) nack(e *entry) {
	s.mu.Lock()
	back := s.queues.release(e, time.Now())
	s.mu.Unlock()
	s.release(back)
	s.pump()
}

// confirm confirms a message that is done with.
func (s *session) confirm(e *entry) {
	s.mu.Lock()
	back := s.queues.done(e)
	copies, over := e.copies, e.over
	e.over = true
	s.mu.Unlock()
	if over { // given back meanwhile: its handler took longer than the stop could wait
		return
	}
	for _, m := range copies {
		s.watchResult(e, "ack", m.AckWithResult())
	}
	s.letGo(e)
	s.release(back)
	s.pump()
}

// release returns messages to Pub/Sub, which delivers them again, to this process or another.
func (s *session) release(back []*entry) {
	for _, e := range back {
		s.mu.Lock()
		s.memory.keep(e)
		copies := e.copies
		e.over = true
		if e.timer != nil {
			e.timer.Stop()
		}
		s.mu.Unlock()
		for _, m := range copies {
			s.counts.nacked.Add(1)
			s.watchResult(e, "nack", m.NackWithResult())
		}
		s.letGo(e)
	}
}

// refuse gives a delivery back that was never claimed.
func (s *session) refuse(m *pubsub.Message) {
	s.counts.nacked.Add(1)
	m.Nack()
}

// letGo makes room.
func (s *session) letGo(e *entry) {
	if e.held {
		s.counts.held.Add(-1)
	}
	s.leave(int64(e.bytes))
}

// watchResult sees to it that a confirmation, or a return, that failed is known. Google's client
// tells of it for subscriptions with exactly-once delivery.
func (s *session) watchResult(e *entry, what string, result *pubsub.AckResult) {
	select {
	case <-result.Ready():
		s.judge(e, what, result)
	default:
		s.results.Go(func() {
			if within(result.Ready(), s.pace.grace) {
				s.judge(e, what, result)
			} else {
				s.complain(e, what, errors.New("not answered in time"))
			}
		})
	}
}

// judge looks at a result that is there.
func (s *session) judge(e *entry, what string, result *pubsub.AckResult) {
	if status, err := result.Get(s.handling); err != nil || status != pubsub.AcknowledgeStatusSuccess {
		s.complain(e, what, fmt.Errorf("status %d: %w", status, err))
	}
}

func (s *session) complain(e *entry, what string, err error) {
	s.counts.ackFailures.Add(1)
	log := s.logOf(e)
	log.WarnContext(s.handling, "confirmation failed", "confirmation", what, "error", err)
}

// logOf is the log for lines about a message.
func (s *session) logOf(e *entry) *slog.Logger {
	m := e.message
	return s.log.With("message_id", m.ID, "type", m.Type, "pubsub_id", e.id, "ordering_key", m.OrderingKey, "attempts", e.past.Failures)
}
