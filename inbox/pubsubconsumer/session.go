package pubsubconsumer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"golang.org/x/sync/semaphore"

	"github.com/gorm-fanout/fanout/inbox"
)

// A session is one Run of a consumer.
type session struct {
	*Consumer

	handling context.Context //nolint:containedctx // that of all handlers of the session; its end is not that of any one call
	messages *semaphore.Weighted
	room     *semaphore.Weighted // in bytes
	waiting  atomic.Int64        // messages that have arrived and find no room
	arrived  atomic.Int64        // messages that have arrived at all
	// unordered is set where message ordering is known not to be enabled.
	unordered atomic.Bool
	under     sync.WaitGroup // way: workers
	results   sync.WaitGroup // of confirmations that are looked at

	mu     sync.Mutex
	queues *queues
	memory memory
}

func newSession(handling context.Context, c *Consumer) *session {
	return &session{
		Consumer: c, handling: handling,
		messages: semaphore.NewWeighted(int64(c.options.maxMessages)), room: semaphore.NewWeighted(int64(c.options.maxBytes)),
		queues: newQueues(c.options.workers, c.options.maxMessages, c.options.maxBytes, c.pace.gap),
	}
}

// arrive claims a delivery. Google's client calls it for the messages of one ordering key one after
// the other.
func (s *session) arrive(ctx context.Context, m *pubsub.Message) {
	s.arrived.Add(1)
	s.counts.received.Add(1)
	size := min(len(m.Data), s.options.maxBytes)
	if !s.admit(ctx, int64(size)) {
		s.refuse(m)
		return
	}
	e := &entry{id: m.ID, bytes: size, copies: []*pubsub.Message{m}, expire: time.Now().Add(s.options.maxExtension)}
	e.message, e.broken = s.decode(m)
	back, taken := s.take(e, m)
	if !taken {
		s.leave(int64(size))
	}
	s.release(back)
	s.pump()
}

// take puts a delivery in its place. It is not taken where it is a copy, which needs no place of
// its own, or comes too late.
func (s *session) take(e *entry, m *pubsub.Message) (back []*entry, taken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queues.stopping {
		s.refuse(m)
		return nil, false
	}
	if found := s.queues.find(e.id); found != nil {
		found.copies = append(found.copies, m)
		found.expire = e.expire
		s.counts.copies.Add(1)
		return nil, false
	}
	if !s.memory.restore(e) && e.message.Deliveries > 1 {
		e.past.Failures = e.message.Deliveries - 1
	}
	return s.queues.add(e, e.message.OrderingKey, m.OrderingKey != "" && !s.unordered.Load()), true
}

// admit waits for room. It is false where ctx ended first.
func (s *session) admit(ctx context.Context, size int64) bool {
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	if s.messages.Acquire(ctx, 1) != nil {
		return false
	}
	if s.room.Acquire(ctx, size) != nil {
		s.messages.Release(1)
		return false
	}
	return true
}

func (s *session) leave(size int64) {
	s.room.Release(size)
	s.messages.Release(1)
}

// pump hands out what can be handled.
func (s *session) pump() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := s.queues.next(); e != nil; e = s.queues.next() {
		s.under.Go(func() { s.work(e) })
	}
}

// keepTime looks after what has waited too long.
func (s *session) keepTime(ctx context.Context) {
	ticker := time.NewTicker(s.pace.tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			s.mu.Lock()
			back := s.queues.tick(now, s.waiting.Load() > 0)
			s.mu.Unlock()
			s.release(back)
			s.pump()
		}
	}
}

// errAborted is why the handlers' context ends.
var errAborted = errors.New("pubsubconsumer: the consumer stops and the shutdown timeout is over")

// stop ends a session: no new messages, those that wait are given back, those under way may end.
func (s *session) stop(abort context.CancelCauseFunc, cancel func()) {
	s.mu.Lock()
	back := s.queues.stop()
	s.mu.Unlock()
	s.release(back)
	cancel()

	done := make(chan struct{})
	go func() {
		s.under.Wait()
		close(done)
	}()
	if within(done, s.options.shutdown) {
		return
	}
	abort(errAborted)
	if within(done, s.pace.grace) {
		return
	}
	s.mu.Lock()
	back = s.queues.leave()
	s.mu.Unlock()
	s.log.ErrorContext(s.handling, "overdue handlers left behind", "messages", len(back))
	s.release(back)
}

// within reports whether done was closed within d.
func within(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// decode reads a delivery. The message is never nil; what cannot be read has no envelope.
func (s *session) decode(m *pubsub.Message) (*inbox.Message, error) {
	message, err := inbox.Decode(m.Data, m.Attributes)
	if err != nil {
		message = &inbox.Message{Key: inbox.KeyOf(s.subscription, m.ID), ID: m.Attributes["id"], Type: m.Attributes["type"], Payload: m.Data, Attributes: m.Attributes}
	}
	message.Consumer, message.Source, message.Position, message.Published = s.options.consumer, s.options.source, m.ID, m.PublishTime
	if m.OrderingKey != "" {
		message.OrderingKey = m.OrderingKey
	}
	if m.DeliveryAttempt != nil {
		message.Deliveries = *m.DeliveryAttempt
	}
	return message, err
}
