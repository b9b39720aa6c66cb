package outbox

import (
	"context"
	"sync"
)

// laneBoard hands lanes to the workers of one processor: a lane that may hold work goes to one worker at a time, so that
// no two of them wait for the same lock, and all lanes get their turn. Lanes of one key hash share their lock across
// classes, so they count as one here.
//
// The lane that has waited longest is next, where a class has a head start over the one below it. So urgent work goes
// first, and no endless work of one class starves another: every lane that waits is ahead of all others in the end.
type laneBoard struct {
	mu      sync.Mutex
	lanes   int    // per class
	dirty   []bool // by lane: may hold work
	since   []int  // by lane: at which turn it became dirty
	taken   []bool // by lane of a class: in a worker's hands
	held    []int  // by lane of a class: the place of the one that was handed out last
	turn    int    // how many lanes were handed out
	stopped bool   // nobody gets a lane
	handed  []int  // by lane of a class: rows on their way by hand-off, which hold back their keys
	behind  []bool // by lane: marked while rows were on their way by hand-off, so that a claim may have found its keys held
	changed chan struct{}
}

// headStart is a class's advantage over the next lower one, in turns for each lane of a class. It is more than a lane waits
// for its turn where the classes below have endless work, so that work that is seldom urgent goes first whenever it comes,
// and with lanes of all classes always full it makes about 65, 22 and 13 turns of 100.
const headStart = 3

// classRank counts the classes above each.
var classRank = [Classes]int{ClassUrgent: 0, ClassNormal: 1, ClassBackfill: 2}

func newLaneBoard(lanes int) *laneBoard {
	return &laneBoard{
		lanes: lanes, dirty: make([]bool, Classes*lanes), since: make([]int, Classes*lanes), taken: make([]bool, lanes), held: make([]int, lanes),
		handed: make([]int, lanes), behind: make([]bool, Classes*lanes), changed: make(chan struct{}),
	}
}

// mark says that lanes may hold work; without arguments, that all of them may.
func (b *laneBoard) mark(lanes ...int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, lane := range lanes {
		if lane >= 0 && lane < len(b.dirty) {
			b.soil(lane)
		}
	}
	if len(lanes) == 0 {
		for lane := range b.dirty {
			b.soil(lane)
		}
	}
	b.broadcast()
}

// markSet says that these lanes may hold work.
func (b *laneBoard) markSet(lanes LaneSet) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for lane := range b.dirty {
		if lanes.Has(lane) {
			b.soil(lane)
		}
	}
	b.broadcast()
}

// soil marks one lane. What waits already keeps its place.
func (b *laneBoard) soil(lane int) {
	if b.handed[lane%b.lanes] > 0 {
		b.behind[lane] = true
	}
	if !b.dirty[lane] {
		b.dirty[lane], b.since[lane] = true, b.turn
	}
}

// take waits for a lane with work. The lane is the caller's until it is put back. ok is false when ctx ended.
func (b *laneBoard) take(ctx context.Context) (lane int, ok bool) {
	for {
		b.mu.Lock()
		changed := b.changed
		if lane, ok := b.next(); ok {
			b.turn++
			b.dirty[lane], b.taken[lane%b.lanes], b.held[lane%b.lanes] = false, true, b.place(lane)
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

// next is the lane with the earliest place among those that can be handed out; of two with the same, the higher class.
func (b *laneBoard) next() (lane int, ok bool) {
	if b.stopped {
		return 0, false
	}
	for other := range b.dirty {
		if !b.dirty[other] || b.taken[other%b.lanes] {
			continue
		}
		earlier := b.place(other) - b.place(lane)
		if !ok || earlier < 0 || earlier == 0 && b.rank(other) < b.rank(lane) {
			lane, ok = other, true
		}
	}
	return lane, ok
}

// place is a lane's place in the queue: the turn since which it waits, behind the head start of the classes above its own.
func (b *laneBoard) place(lane int) int { return b.since[lane] + headStart*b.lanes*b.rank(lane) }

func (b *laneBoard) rank(lane int) int { return classRank[lane/b.lanes] }

// outranked reports whether a lane of a higher class should not wait until the caller's turn on its lane is over. One that
// came after the caller's lane had waited its time should: else a turn under endless urgent work would end with its first batch.
func (b *laneBoard) outranked(lane int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for other, dirty := range b.dirty {
		free := other%b.lanes == lane%b.lanes || !b.taken[other%b.lanes] // once the caller puts back its own
		if dirty && free && b.rank(other) < b.rank(lane) && b.place(other) <= b.held[lane%b.lanes] {
			return true
		}
	}
	return false
}

// stop keeps lanes back from workers that ask for one, or ends that.
func (b *laneBoard) stop(stopped bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped != stopped {
		b.stopped = stopped
		b.broadcast()
	}
}

// put gives a lane back; more says that it may still hold work.
func (b *laneBoard) put(lane int, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken[lane%b.lanes] = false
	if more {
		b.soil(lane)
	}
	b.broadcast()
}

func (b *laneBoard) broadcast() {
	close(b.changed)
	b.changed = make(chan struct{})
}
