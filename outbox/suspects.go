package outbox

import (
	"sync"
	"sync/atomic"
	"time"
)

// suspects are the messages at which an outage of the broker was noticed. An outage is nobody's fault; but a message that
// meets one again and again, while others get through in between, makes it itself: it resets the connection, say, or
// takes longer than any timeout. Were it spared like the others, it would stand at the head of every probe for ever.
type suspects struct {
	count  atomic.Int64 // of seen: as a rule there are none, and that costs no lock to know
	mu     sync.Mutex
	seen   map[int64]time.Time // row id -> when it met an outage first; the zero time = guilty without more evidence
	passed time.Time           // when the last call began in which a message got through
}

// maxSuspects bounds the memory for them. Who is forgotten is noticed again.
const maxSuspects = 1000

// accuse notes that the message of a row met an outage. guilty is true when it did so before, and others have got through
// since, in a call that began afterwards: one that was under way tells nothing about an outage.
func (s *suspects) accuse(id int64) (guilty bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	since, known := s.seen[id]
	if known && s.passed.After(since) {
		if !since.IsZero() {
			s.forget(id)
		}
		return true
	}
	if !known {
		s.note(id, time.Now())
	}
	return false
}

// convict makes the message of a row guilty whenever it is accused, until it gets through.
func (s *suspects) convict(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(id, time.Time{})
}

// suspected reports whether the message of a row has met an outage before.
func (s *suspects) suspected(id int64) bool {
	if s.count.Load() == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.seen[id]
	return ok
}

// pass notes that messages got through in a call that began at this time.
func (s *suspects) pass(began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if began.After(s.passed) {
		s.passed = began
	}
}

// clear forgets a message that got through.
func (s *suspects) clear(id int64) {
	if s.count.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(id)
}

func (s *suspects) note(id int64, at time.Time) {
	if s.seen == nil || len(s.seen) >= maxSuspects {
		s.seen = make(map[int64]time.Time)
	}
	s.seen[id] = at
	s.count.Store(int64(len(s.seen)))
}

func (s *suspects) forget(id int64) {
	delete(s.seen, id)
	s.count.Store(int64(len(s.seen)))
}
