package outbox

import (
	"context"
	"sync"
)

// laneBoard hands lanes to the workers of one processor: a lane that may hold work goes to one worker at a time, so that
// no two of them wait for the same lock, and all lanes get their turn. Lanes of one key hash share their lock across
// classes, so they count as one here.
type laneBoard struct {
	mu      sync.Mutex
	lanes   int    // per class
	dirty   []bool // by lane: may hold work
	taken   []bool // by lane of a class: in a worker's hands
	turn    int
	stopped bool // nobody gets a lane
	changed chan struct{}
}

// backfillTurn is which turn the backfill comes first in: urgent and normal work that never ends must not starve it.
const backfillTurn = 4

func newLaneBoard(lanes int) *laneBoard {
	return &laneBoard{lanes: lanes, dirty: make([]bool, Classes*lanes), taken: make([]bool, lanes), changed: make(chan struct{})}
}

// mark says that lanes may hold work; without arguments, that all of them may.
func (b *laneBoard) mark(lanes ...int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, lane := range lanes {
		if lane >= 0 && lane < len(b.dirty) {
			b.dirty[lane] = true
		}
	}
	if len(lanes) == 0 {
		for lane := range b.dirty {
			b.dirty[lane] = true
		}
	}
	b.broadcast()
}

// take waits for a lane with work, the urgent class first and of each class the one after last. The lane is the caller's
// until it is put back. ok is false when ctx ended.
func (b *laneBoard) take(ctx context.Context, last int) (lane int, ok bool) {
	for {
		b.mu.Lock()
		changed := b.changed
		if lane, ok := b.next(last); ok {
			b.turn++
			b.dirty[lane], b.taken[lane%b.lanes] = false, true
			b.mu.Unlock()
			return lane, ctx.Err() == nil
		}
		b.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, false
		}
	}
}

func (b *laneBoard) next(last int) (lane int, ok bool) {
	if b.stopped {
		return 0, false
	}
	order := [...]Class{ClassUrgent, ClassNormal, ClassBackfill}
	if b.turn%backfillTurn == backfillTurn-1 {
		order = [...]Class{ClassBackfill, ClassUrgent, ClassNormal}
	}
	for _, class := range order {
		for i := range b.lanes {
			n := (last + 1 + i) % b.lanes
			if lane := int(class)*b.lanes + n; b.dirty[lane] && !b.taken[n] {
				return lane, true
			}
		}
	}
	return 0, false
}

// outranked reports whether a lane of a higher class waits for a worker.
func (b *laneBoard) outranked(lane int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	rank := [Classes]int{ClassUrgent: 2, ClassNormal: 1, ClassBackfill: 0}
	for other, dirty := range b.dirty {
		if dirty && rank[other/b.lanes] > rank[lane/b.lanes] {
			return true
		}
	}
	return false
}

// stop keeps lanes back from workers that ask for one, or ends that.
func (b *laneBoard) stop(stopped bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = stopped
	b.broadcast()
}

// put gives a lane back; more says that it may still hold work.
func (b *laneBoard) put(lane int, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken[lane%b.lanes] = false
	b.dirty[lane] = b.dirty[lane] || more
	b.broadcast()
}

func (b *laneBoard) broadcast() {
	close(b.changed)
	b.changed = make(chan struct{})
}
