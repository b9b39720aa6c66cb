package outbox

import (
	"sync"
	"sync/atomic"
)

// suspects are the messages at which an outage of the broker was noticed. An outage is nobody's fault; but a message that
// meets one again and again, while others get through in between, makes it itself: it resets the connection, say, or
// takes longer than any timeout. Were it spared like the others, it would stand at the head of every probe for ever.
type suspects struct {
	count atomic.Int64 // of seen: as a rule there are none, and that costs no lock to know
	mu    sync.Mutex
	seen  map[int64]int64 // row id -> how many messages had been published by then
}

// maxSuspects bounds the memory for them. Who is forgotten is noticed again.
const maxSuspects = 1000

// accuse notes that the message of a row met an outage after so many published messages. guilty is true when it did so
// before, and others have got through since.
func (s *suspects) accuse(id, published int64) (guilty bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.count.Store(int64(len(s.seen))) }()
	since, known := s.seen[id]
	if known && published > since {
		delete(s.seen, id)
		return true
	}
	if !known {
		if s.seen == nil || len(s.seen) >= maxSuspects {
			s.seen = make(map[int64]int64)
		}
		s.seen[id] = published
	}
	return false
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

// clear forgets a message that got through.
func (s *suspects) clear(id int64) {
	if s.count.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, id)
	s.count.Store(int64(len(s.seen)))
}
