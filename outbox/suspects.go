package outbox

import "sync"

// suspects are the messages at which an outage of the broker was noticed. An outage is nobody's fault; but a message that
// meets one again and again, while others get through in between, makes it itself: it resets the connection, say, or
// takes longer than any timeout. Were it spared like the others, it would stand at the head of every probe for ever.
type suspects struct {
	mu   sync.Mutex
	seen map[int64]int64 // row id -> how many messages had been published by then; convicted = guilty without more evidence
}

const (
	// maxSuspects bounds the memory for them. Who is forgotten is noticed again.
	maxSuspects = 1000
	convicted   = -1
)

// accuse notes that the message of a row met an outage after so many published messages. guilty is true when it did so
// before, and others have got through since.
func (s *suspects) accuse(id, published int64) (guilty bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	since, known := s.seen[id]
	if known && published > since {
		if since != convicted {
			delete(s.seen, id)
		}
		return true
	}
	if !known {
		s.note(id, published)
	}
	return false
}

// convict makes the message of a row guilty whenever it is accused, until it gets through.
func (s *suspects) convict(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(id, convicted)
}

func (s *suspects) note(id, published int64) {
	if s.seen == nil || len(s.seen) >= maxSuspects {
		s.seen = make(map[int64]int64)
	}
	s.seen[id] = published
}

// suspected reports whether the message of a row has met an outage before.
func (s *suspects) suspected(id int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.seen[id]
	return ok
}

// clear forgets a message that got through.
func (s *suspects) clear(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, id)
}
