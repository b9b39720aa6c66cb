package consumer

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
)

// Read reads a delivery to a consumer with a completed configuration. The message is never nil; one that
// cannot be read has what there is, and no envelope. So has one where there is a decoder, until the session
// asks that: the error is [inbox.Unavailable] then. id is what the broker knows the message by, the same
// each time that it comes. Deliveries are the transport's to set.
func Read(c *inbox.ConsumerConfig, raw *inbox.RawMessage, id string) (message *inbox.Message, err error) {
	var key uuid.UUID
	if c.Decoder != nil {
		err = inbox.Unavailable(&unreadError{id})
	} else if message, err = c.Decoder.Decode(raw); err != nil {
		key = inbox.UnreadableKey(raw, id)
	}
	if err != nil {
		a := raw.Attributes
		message = &inbox.Message{
			Key: key, ID: shortened(cmp.Or(a["id"], a["ce-id"])), Type: shortened(cmp.Or(a["type"], a["ce-type"])),
			OrderingKey: raw.OrderingKey, Payload: raw.Payload, Attributes: a,
		}
	}
	message.Consumer, message.Source, message.Position, message.Published = c.Consumer, raw.Source, raw.Position, raw.Published
	message.BrokerKey = raw.OrderingKey
	return message, err
}

// unreadable decides about a message that cannot be read.
func (s *Session) unreadable(e *Entry) {
	m := e.Message
	if inbox.IsUnavailable(e.Broken) {
		s.read(e)
		return
	}
	if errors.Is(e.Broken, inbox.ErrSkip) {
		s.attemptWith(e, inbox.HandlerFunc(skip))
		return
	}
	if !e.counted {
		e.counted = true
		s.Counts.unreadable.Add(1)
	}
	rejecter, keeps := s.Runner.Handler.(inbox.Rejecter)
	switch {
	case s.skipsType(m.Type):
		s.attemptWith(e, s.Runner.Handler)
	case s.Unreadable == inbox.UnreadableSkip:
		s.reportSkipped(e)
		s.attemptWith(e, inbox.HandlerFunc(skip))
	case keeps && s.DeadLetter == nil: // rather than to give it back until the broker's policy takes it, while its key waits
		s.attemptWith(e, inbox.HandlerFunc(func(ctx context.Context, m *inbox.Message) (inbox.Outcome, error) {
			outcome, err := rejecter.Reject(ctx, m, e.Broken)
			if err == nil && outcome == inbox.DeadLettered {
				s.reportKept(e, "dead-lettered")
			}
			return outcome, err
		}))
	case s.hasPlace(e):
		s.reportKept(e, "forwarded")
		if s.learn(e, func() { e.Why = e.Broken }) {
			s.putAway(e)
		} else {
			s.nack(e)
		}
	default:
		s.hold(e)
	}
}

func skip(context.Context, *inbox.Message) (inbox.Outcome, error) { return inbox.Skipped, nil }

// attemptWith makes an attempt at a message that cannot be read, as at others: observers are notified,
// and an outage is waited for.
func (s *Session) attemptWith(e *Entry, handler inbox.Handler) {
	m := e.Message
	if m.Envelope == nil { // who observes may ask it
		m.Envelope = &envelope.Message{Metadata: envelope.Metadata{Headers: envelope.Headers{ID: m.Key, Type: m.Type}}}
	}
	s.attempt(e, handler)
}

// skipsType reports whether the handler skips a type, known from a flat field, whatever its
// messages hold.
func (s *Session) skipsType(wireType string) (skips bool) {
	defer func() {
		if value := recover(); value != nil {
			s.Log.ErrorContext(s.handling, "handler panicked", "type", wireType, "panic", value)
		}
	}()
	skipper, is := s.Runner.Handler.(inbox.Skipper)
	return is && wireType != "" && skipper.Skips(wireType)
}

// hasPlace reports whether the broker has a place for dead letters.
func (s *Session) hasPlace(e *Entry) bool {
	return s.DeadLetter != nil || s.HandBack != nil && s.HandBack(e)
}

// homeless reports whether a message cannot be read, and has no place where it could be kept.
func (s *Session) homeless(e *Entry) bool {
	if e.Broken == nil || inbox.IsUnavailable(e.Broken) || s.Unreadable == inbox.UnreadableSkip || s.hasPlace(e) {
		return false
	}
	_, keeps := s.Runner.Handler.(inbox.Rejecter)
	return !keeps
}

// keyOf is what a message waits for, as far as it is known: one that will be held keeps no key.
func (s *Session) keyOf(e *Entry) string {
	if s.homeless(e) {
		return ""
	}
	return e.Message.OrderingKey
}

// read asks the decoder about a message that it has not been asked about, or for which it was out. The
// broker's own key waits for it. Without that its key is known only afterwards: while it is read for the
// first time all that is like it waits, so that the order is kept, and not for longer.
func (s *Session) read(e *Entry) {
	was := e.Message
	raw := &inbox.RawMessage{
		Payload: was.Payload, Attributes: was.Attributes, OrderingKey: was.BrokerKey, Source: was.Source, Position: was.Position, Published: was.Published,
	}
	m, err := s.decoderOf(e).Decode(raw)
	if inbox.IsUnavailable(err) {
		ours := s.learn(e, func() {
			e.Broken, e.Past.Setbacks = err, e.Past.Setbacks+1
			if e.queue.unread {
				s.queues.part(e, "")
			}
		})
		if !ours {
			s.nack(e)
			return
		}
		delay := s.Runner.Retry.Delay(e.Past.Setbacks)
		s.reportOutage(e, delay, err)
		s.pause(e, time.Now().Add(delay))
		return
	}
	if err == nil {
		m.Consumer, m.Source, m.Position, m.Published = was.Consumer, was.Source, was.Position, was.Published
		m.Deliveries, m.BrokerKey = was.Deliveries, was.BrokerKey
	} else {
		m = was
		m.Key = inbox.UnreadableKey(raw, e.name)
	}
	stays, alone := false, false
	s.learn(e, func() {
		e.Message, e.Broken, e.Past.Setbacks = m, err, 0
		stays = !e.leaving && !s.queues.stopping
		alone = s.queues.part(e, s.keyOf(e))
	})
	switch {
	case !stays:
		s.nack(e)
	case alone:
		s.pump() // what was behind it
		s.work(e)
	}
}

// What cannot be read is logged once a minute at most for each shape, and for each outcome.
func (s *Session) reportKept(e *Entry, outcome string) {
	shape := shapeOf(e.Message)
	if n := s.Counts.notice(shape+" "+outcome, time.Now()); n > 0 {
		log := s.logOf(e)
		log.ErrorContext(s.handling, "message cannot be read", "outcome", outcome, "shape", shape, "messages", n, "error", e.Broken)
	}
}

func (s *Session) reportSkipped(e *Entry) {
	shape := shapeOf(e.Message)
	if n := s.Counts.notice(shape+" skipped", time.Now()); n > 0 {
		log := s.logOf(e)
		log.WarnContext(s.handling, "unreadable message skipped", "shape", shape, "messages", n, "error", e.Broken)
	}
}

// reportOutage logs that a decoder is out, as often.
func (s *Session) reportOutage(e *Entry, delay time.Duration, err error) {
	if n := s.Counts.notice("unavailable", time.Now()); n > 0 {
		log := s.logOf(e)
		log.WarnContext(s.handling, "message cannot be read yet", "messages", n, "retry_in", delay, "error", err)
	}
}
