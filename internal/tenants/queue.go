package tenants

import (
	"context"
	"slices"
	"sync"
)

// queue hands out places: those that wait have the next ones, of the least rank first, and of one rank in
// the order in which they came.
type queue struct {
	mu      sync.Mutex
	free    int
	waiting []*ticket
}

// ticket is a place, or a place in the queue.
type ticket struct {
	rank    int
	granted chan struct{} // closed when it is a place
}

func (q *queue) join(rank int) *ticket {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := &ticket{rank: rank, granted: make(chan struct{})}
	if q.free > 0 {
		q.free--
		close(t.granted)
		return t
	}
	at := slices.IndexFunc(q.waiting, func(other *ticket) bool { return other.rank > rank })
	if at < 0 {
		at = len(q.waiting)
	}
	q.waiting = slices.Insert(q.waiting, at, t)
	return t
}

// leave gives back a place, or one in the queue.
func (q *queue) leave(t *ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch at := slices.Index(q.waiting, t); {
	case at >= 0:
		q.waiting = slices.Delete(q.waiting, at, at+1)
	case len(q.waiting) > 0:
		close(q.waiting[0].granted)
		q.waiting = slices.Delete(q.waiting, 0, 1)
	default:
		q.free++
	}
}

// enter waits for a place; false where ctx ends before.
func (q *queue) enter(ctx context.Context, rank int) (leave func(), entered bool) {
	t := q.join(rank)
	select {
	case <-t.granted:
		return func() { q.leave(t) }, true
	case <-ctx.Done():
		q.leave(t)
		return nil, false
	}
}

// length is how many wait.
func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}
