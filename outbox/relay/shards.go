package relay

import (
	"context"
	"slices"
	"sync"

	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
)

// shardBoard hands shards to the workers of one processor: a shard that may hold work goes to one
// worker at a time, so that no two of them wait for the same lock, and all shards get their turn.
// Shards of one key hash share their lock across classes, so they count as one here.
//
// The shard that has waited longest is next, where a class has a head start over the one below it.
// So urgent work goes first, and no endless work of one class starves another: every shard that
// waits is ahead of all others in the end.
type shardBoard struct {
	mu      sync.Mutex
	shards  int    // per class
	dirty   []bool // by shard: may hold work
	since   []int  // by shard: at which turn it became dirty
	taken   []int  // by shard of a class: the one that a worker has, or -1
	held    []int  // by shard of a class: the place of the one that was handed out last
	again   []bool // by shard of a class: a poll has left out the one that a worker has
	turn    int    // how many shards were handed out
	stopped bool   // no worker gets a shard
	changed chan struct{}
}

// headStart is a class's advantage over the next lower one, in turns for each shard of a class. It
// is more than a shard waits for its turn where the classes below have endless work, so that work
// that is seldom urgent goes first whenever it comes, and with shards of all classes always full it
// makes about 65, 22 and 13 turns of 100.
const headStart = 3

// no worker has a shard.
const none = -1

// classRank counts the classes above each.
var classRank = [outbox.Classes]int{outbox.ClassUrgent: 0, outbox.ClassNormal: 1, outbox.ClassBackfill: 2}

func newShardBoard(shards int) *shardBoard {
	return &shardBoard{
		shards: shards, dirty: make([]bool, outbox.Classes*shards), since: make([]int, outbox.Classes*shards),
		taken: slices.Repeat([]int{none}, shards), held: make([]int, shards), again: make([]bool, shards), changed: make(chan struct{}),
	}
}

// mark says that shards may hold work; without arguments, that all of them may.
func (b *shardBoard) mark(shards ...int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, shard := range shards {
		if shard >= 0 && shard < len(b.dirty) {
			b.markDirty(shard)
		}
	}
	if len(shards) == 0 {
		for shard := range b.dirty {
			b.markDirty(shard)
		}
	}
	b.broadcast()
}

// markSet says that these shards may hold work.
func (b *shardBoard) markSet(shards wakeup.Set) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for shard := range b.dirty {
		if shards.Has(shard) {
			b.markDirty(shard)
		}
	}
	b.broadcast()
}

// markDirty notes that one shard has work. What waits already keeps its place.
func (b *shardBoard) markDirty(shard int) {
	if !b.dirty[shard] {
		b.dirty[shard], b.since[shard] = true, b.turn
	}
}

// take waits for a shard with work. The shard is the caller's until it is put back. ok is false
// when ctx ended.
func (b *shardBoard) take(ctx context.Context) (shard int, ok bool) {
	for {
		b.mu.Lock()
		changed := b.changed
		if shard, ok := b.next(); ok {
			b.turn++
			b.dirty[shard], b.taken[shard%b.shards], b.held[shard%b.shards] = false, shard, b.place(shard)
			b.mu.Unlock()
			return shard, ctx.Err() == nil
		}
		b.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, false
		}
	}
}

// next is the shard with the earliest place among those that can be handed out; of two with the
// same, the higher class.
func (b *shardBoard) next() (shard int, ok bool) {
	if b.stopped {
		return 0, false
	}
	for other := range b.dirty {
		if !b.dirty[other] || b.taken[other%b.shards] != none {
			continue
		}
		earlier := b.place(other) - b.place(shard)
		if !ok || earlier < 0 || earlier == 0 && b.rank(other) < b.rank(shard) {
			shard, ok = other, true
		}
	}
	return shard, ok
}

// place is a shard's place in the queue: the turn since which it waits, behind the head start of
// the classes above its own.
func (b *shardBoard) place(shard int) int { return b.since[shard] + headStart*b.shards*b.rank(shard) }

func (b *shardBoard) rank(shard int) int { return classRank[shard/b.shards] }

// outranked reports whether a shard of a higher class should not wait until the caller's turn on
// its shard is over. One that came after the caller's shard had waited its time should: else a turn
// under endless urgent work would end with its first batch.
func (b *shardBoard) outranked(shard int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for other, dirty := range b.dirty {
		free := other%b.shards == shard%b.shards || b.taken[other%b.shards] == none // once the caller puts back its own
		if dirty && free && b.rank(other) < b.rank(shard) && b.place(other) <= b.held[shard%b.shards] {
			return true
		}
	}
	return false
}

// busy are the shards that a poll need not look at: those that wait for a worker, and those that a
// worker has, which are claimed from once more when it puts them back. Zero = none.
func (b *shardBoard) busy() (set wakeup.Set) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for shard, dirty := range b.dirty {
		lock := shard % b.shards
		if b.taken[lock] == shard {
			b.again[lock], dirty = true, true
		}
		if dirty {
			set |= wakeup.SetOf(shard)
		}
	}
	return set
}

// stop keeps shards back from workers that ask for one, or ends that.
func (b *shardBoard) stop(stopped bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped != stopped {
		b.stopped = stopped
		b.broadcast()
	}
}

// put gives a shard back; more says that it may still hold work.
func (b *shardBoard) put(shard int, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	lock := shard % b.shards
	if more || b.again[lock] {
		b.markDirty(shard)
	}
	b.taken[lock], b.again[lock] = none, false
	b.broadcast()
}

func (b *shardBoard) broadcast() {
	close(b.changed)
	b.changed = make(chan struct{})
}
