package outbox

import (
	"context"
	"sync"
)

// laneBoard hands lanes to the workers of one processor: a lane that may hold work goes to one worker at a time, so that
// no two of them wait for the same lock, and all lanes get their turn.
type laneBoard struct {
	mu      sync.Mutex
	dirty   []bool // may hold work
	taken   []bool // in a worker's hands
	changed chan struct{}
}

func newLaneBoard(lanes int) *laneBoard {
	return &laneBoard{dirty: make([]bool, lanes), taken: make([]bool, lanes), changed: make(chan struct{})}
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

// take waits for a lane with work, looking first at the one after last. The lane is the caller's until it is put back.
// ok is false when ctx ended.
func (b *laneBoard) take(ctx context.Context, last int) (lane int, ok bool) {
	for {
		b.mu.Lock()
		changed := b.changed
		for i := range b.dirty {
			lane := (last + 1 + i) % len(b.dirty)
			if b.dirty[lane] && !b.taken[lane] {
				b.dirty[lane], b.taken[lane] = false, true
				b.mu.Unlock()
				return lane, ctx.Err() == nil
			}
		}
		b.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, false
		}
	}
}

// put gives a lane back; more says that it may still hold work.
func (b *laneBoard) put(lane int, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken[lane] = false
	b.dirty[lane] = b.dirty[lane] || more
	b.broadcast()
}

func (b *laneBoard) broadcast() {
	close(b.changed)
	b.changed = make(chan struct{})
}
