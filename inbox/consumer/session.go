// Package consumer is what consumers do with the messages that they have claimed, whatever broker
// these come from: it hands them to the handler one at a time of a key, in the order in which they
// have arrived, keys beside each other; tries those that fail again after a pause, while what is
// behind them waits; confirms what is done; puts away what is abandoned; and stops in good order.
//
// A consumer's transport is left with what its broker alone knows: to receive, to confirm, to
// notice that a claim is lost.
package consumer

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/gorm-fanout/fanout/inbox"
)

// A Delivery is a message as a broker has handed it out once. Its methods return quickly, and are
// called once at most, one of the two.
type Delivery interface {
	// Ack confirms it: the message is done with.
	Ack()
	// Nack gives it back: the broker is to deliver it again.
	Nack()
}

// Settings of a session.
type Settings struct {
	// Runner makes the attempts; its Overdue is the session's own.
	Runner inbox.Runner
	// Workers is how many handlers run at once.
	Workers int
	// MaxMessages and MaxBytes bound what is claimed by [Session.Arrive]. Zero: the transport bounds
	// it, and uses [Session.Take].
	MaxMessages, MaxBytes int
	// Shutdown is how long handlers may go on after a stop has begun; Grace how long after that,
	// with their contexts ended.
	Shutdown, Grace time.Duration
	// GiveBack lets go of a part of what waits where it fills all the room while workers are idle;
	// for brokers that deliver something else then. Tick is how often that is looked at.
	GiveBack bool
	Tick     time.Duration
	// Recurs says that the ids of entries are the same for all deliveries of a message, so that
	// what failed before it was given back is remembered.
	Recurs bool
	// LatestConfirms says that the latest delivery of a message stands for all of them: those
	// before it are neither confirmed nor given back.
	LatestConfirms bool
	// DeadLetter puts an abandoned message away; nil where there is no place. An error is tried
	// again, with pauses.
	DeadLetter func(ctx context.Context, e *Entry) error
	// Decoder reads messages for which [Read] was [inbox.Unavailable]; Unreadable says what
	// happens with those that cannot be read.
	Decoder    inbox.Decoder
	Unreadable inbox.Unreadable
	// HandBack reports whether the broker itself puts the message away when it is given back often
	// enough. Nil: never.
	HandBack func(e *Entry) bool
	// Before reports whether a belongs before b in their key, where the broker does not deliver in that
	// order: of two that it says nothing about, the one that arrived first. Nil: all are like those.
	Before func(a, b *Entry) bool
	// Load, if set, is called before anything is done with an entry: it may have been unloaded. An error
	// is tried again, with pauses; an entry that is [ErrGone] is done with.
	Load func(ctx context.Context, e *Entry) error
	// Log is for lines about the consumer and its messages.
	Log *slog.Logger
	// Counts are the consumer's, over all its sessions.
	Counts *Counts
}

// A Session is one run of a consumer. Its methods are safe for concurrent use.
type Session struct {
	Settings

	handling context.Context //nolint:containedctx // that of all handlers of the session; its end is not that of any one call
	abort    context.CancelCauseFunc
	messages *semaphore.Weighted
	room     *semaphore.Weighted // in bytes
	waiting  atomic.Int64        // messages that have arrived and find no room
	under    sync.WaitGroup      // handlers that run

	mu     sync.Mutex
	queues *queues
	memory memory
	quiet  chan struct{} // closed when no handler runs; nil where that is not awaited
}

// New returns a session whose handlers have the values of ctx, but not its end.
func New(ctx context.Context, settings *Settings) *Session {
	handling, abort := context.WithCancelCause(context.WithoutCancel(ctx))
	s := &Session{
		Settings: *settings, handling: handling, abort: abort,
		messages: semaphore.NewWeighted(int64(settings.MaxMessages)), room: semaphore.NewWeighted(int64(settings.MaxBytes)),
		queues: newQueues(settings.Workers, settings.MaxMessages, settings.MaxBytes),
	}
	s.queues.before = settings.Before
	return s
}

// Context is that of the handlers.
func (s *Session) Context() context.Context { return s.handling }

// Arrive claims a delivery as soon as there is room for it. Where ctx ends first, or the session
// stops, the delivery is given back.
func (s *Session) Arrive(ctx context.Context, e *Entry, d Delivery) {
	e.Bytes = min(e.Bytes, s.MaxBytes)
	if !s.admit(ctx, int64(e.Bytes)) {
		s.Counts.received.Add(1)
		s.refuse(d)
		return
	}
	e.admitted = true
	if !s.Take(e, d) { //nolint:contextcheck // handlers outlive ctx: they have the session's
		s.leave(int64(e.Bytes))
	}
}

// Take claims a delivery without asking for room. It is not taken where it is a copy of a message
// that is claimed, which shares that one's fate, or where the session stops: then it is given back.
func (s *Session) Take(e *Entry, d Delivery) bool {
	s.Counts.received.Add(1)
	taken := s.take(e, d)
	s.pump()
	return taken
}

func (s *Session) take(e *Entry, d Delivery) (taken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queues.stopping {
		s.refuse(d)
		return false
	}
	if found := s.queues.find(e.ID); found != nil {
		if s.LatestConfirms {
			found.copies = nil
		}
		found.copies = append(found.copies, d)
		found.Expire = e.Expire
		s.Counts.copies.Add(1)
		return false
	}
	e.first, e.copies, e.claimed = d, []Delivery{d}, time.Now()
	if s.Recurs {
		s.memory.restore(e)
	}
	var unread *unreadError
	if errors.As(e.Broken, &unread) {
		e.name, e.unread = unread.id, e.Why == nil && e.due.IsZero()
	}
	s.queues.add(e, s.keyOf(e))
	return true
}

// admit waits for room. It is false where ctx ended first.
func (s *Session) admit(ctx context.Context, size int64) bool {
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

// Room waits until so many messages more could be claimed by Arrive, or all that ever can. It is false
// where ctx ended first.
func (s *Session) Room(ctx context.Context, messages int) bool {
	n := int64(min(messages, s.MaxMessages))
	s.waiting.Add(1) // what waits may fill the room, but for less than that
	defer s.waiting.Add(-1)
	if s.messages.Acquire(ctx, n) != nil {
		return false
	}
	s.messages.Release(n)
	return true
}

func (s *Session) leave(size int64) {
	s.room.Release(size)
	s.messages.Release(1)
}

// pump hands out what can be handled.
func (s *Session) pump() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := s.queues.next(); e != nil; e = s.queues.next() {
		s.under.Go(func() {
			s.work(e)
			s.pump() // its worker is free
		})
	}
	if s.quiet != nil && s.queues.running == 0 {
		close(s.quiet)
		s.quiet = nil
	}
}

// Ready reports whether a message waits for a worker alone, and whether one does that is not low.
func (s *Session) Ready() (ready, urgent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queues.hasReady(), len(s.queues.ready) > 0
}

// Idle reports whether a worker is free and no message could be handled.
func (s *Session) Idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.queues.still && s.queues.hasWorker() && !s.queues.hasReady()
}

// Unload calls drop with entries that wait for others or for their next attempt, those first that wait
// for longest, until it has reported n times that it has dropped the message: [Settings.Load] brings it
// back. The session is locked meanwhile.
func (s *Session) Unload(n int, drop func(e *Entry) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.queues.last() {
		if n == 0 {
			return
		}
		if drop(e) {
			n--
		}
	}
}

// Still hands out nothing any more, and waits until no handler runs, d at most. Where it reports that
// none does, that remains so until [Session.Resume]; else the session goes on.
func (s *Session) Still(ctx context.Context, d time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	quiet := make(chan struct{})
	s.mu.Lock()
	s.queues.still, s.quiet = true, quiet
	s.mu.Unlock()
	s.pump() //nolint:contextcheck // it hands nothing out
	select {
	case <-quiet:
		return true
	case <-ctx.Done():
		s.Resume() //nolint:contextcheck // handlers outlive ctx
		return false
	}
}

// Resume ends what [Session.Still] has begun.
func (s *Session) Resume() {
	s.mu.Lock()
	s.queues.still, s.quiet = false, nil
	s.mu.Unlock()
	s.pump()
}

// KeepTime looks after what has waited too long, until ctx ends. Sessions without [Entry.Gap] and GiveBack
// do not need it.
func (s *Session) KeepTime(ctx context.Context) {
	ticker := time.NewTicker(s.Tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			s.mu.Lock()
			back := s.queues.tick(now, s.GiveBack, s.waiting.Load() > 0)
			s.mu.Unlock()
			s.release(back)
			s.pump() //nolint:contextcheck // handlers outlive ctx: they have the session's
		}
	}
}

// Figures are the messages that are neither confirmed nor given back, and the handlers that run.
func (s *Session) Figures() (claimed, running int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queues.byID), s.queues.running
}

// Oldest is for how long the message has been claimed that has been so for longest; 0 where none
// is.
func (s *Session) Oldest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	first := now
	for _, e := range s.queues.byID {
		if e.claimed.Before(first) {
			first = e.claimed
		}
	}
	return now.Sub(first)
}

// Claimed are the deliveries that are neither confirmed nor given back.
func (s *Session) Claimed() (all []Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.queues.byID {
		all = append(all, e.copies...)
	}
	return all
}

// ErrGone is an entry that its broker does not have any more.
var ErrGone = errors.New("inbox: the broker does not have the message any more")

// Why the context of a handler ends.
var (
	errAborted = errors.New("inbox: the consumer stops and the shutdown timeout is over")
	errLost    = errors.New("inbox: the broker has taken the message back, and gives it to a consumer again")
)

// Withdraw gives up the claimed messages that match: what waits goes at once, and what is being
// handled may end, and be confirmed, until ctx ends. After that its handler's context ends, and
// whatever its outcome, it is not confirmed. What waits behind it of other origin stays behind it.
func (s *Session) Withdraw(ctx context.Context, match func(e *Entry) bool) {
	s.mu.Lock()
	back, under := s.queues.withdraw(time.Now(), match)
	for _, e := range under {
		if e.settled == nil {
			e.settled = make(chan struct{})
		}
	}
	s.mu.Unlock()
	s.release(back)
	for _, e := range under {
		select {
		case <-e.settled:
			continue
		default:
		}
		select {
		case <-e.settled:
		case <-ctx.Done():
			s.lose(e)
		}
	}
	s.pump() //nolint:contextcheck // handlers outlive ctx: they have the session's
}

// lose gives up a message that is being handled.
func (s *Session) lose(e *Entry) {
	s.mu.Lock()
	if e.over {
		s.mu.Unlock()
		return
	}
	s.queues.lose(e, time.Now())
	cancel := e.cancel
	s.mu.Unlock()
	s.release([]*Entry{e})
	if cancel != nil {
		cancel(errLost)
	}
}

// Stop ends a session: messages that wait are given back, running handlers may end. unsubscribe is
// called as soon as nothing is taken any more.
func (s *Session) Stop(unsubscribe func()) {
	defer s.abort(nil)
	s.mu.Lock()
	back := s.queues.stop()
	s.mu.Unlock()
	s.release(back)
	unsubscribe()

	done := make(chan struct{})
	go func() {
		s.under.Wait()
		close(done)
	}()
	if Within(done, s.Shutdown) {
		return
	}
	s.abort(errAborted)
	if Within(done, s.Grace) {
		return
	}
	s.mu.Lock()
	back = s.queues.leave()
	s.mu.Unlock()
	s.Log.ErrorContext(s.handling, "overdue handlers left behind", "messages", len(back))
	s.release(back)
}

// Within reports whether done was closed within d.
func Within(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// Pause waits for d, and reports false when ctx ended first.
func Pause(ctx context.Context, d time.Duration) bool {
	return !Within(ctx.Done(), d)
}
