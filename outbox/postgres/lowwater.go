package postgres

import (
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
)

// lowWater remembers below which id a shard holds nothing open, so that claims begin there.
// Finished rows leave entries in the claim's index that only vacuum removes; while some old
// transaction holds vacuum back, a claim that began at the shard's first id would go through all of
// them, more from second to second.
//
// A mark must never stand above a row that is open or can become so. What stands below it, by
// claims A, B and C in this order:
//
//   - A sees x as the first open row of the shard. Then the transactions are listed that may have taken an id and are under
//     way. Ids are handed out in ascending order, and x is there: who holds an id below x has taken it before, and is on the
//     list or has ended.
//   - B lists them again, and none of the first list is there: all rows below x are visible from now on, or will never be.
//     (B is not needed where the first list is empty.)
//   - C sees y as the first open row. The mark is the lower one of x and y: of the rows below it none can come, and none is open.
//   - Whoever makes a row open again counts that in the same transaction. A claim compares the count with the one under which
//     the mark was learned, in the same snapshot in which it reads rows, and does without the mark when they differ. What a claim
//     brings back itself, in its own transaction and under the shard's lock, lowers the mark to the lowest of these rows instead.
//
// Rows that an operator makes open without counting, or inserts with an id of the past, are found
// by a full look now and then.
//
// Ids ascend as long as the server keeps what it has committed. One that has not (a standby that
// did not have everything was promoted, a backup was restored) hands out ids again that are below
// the marks. All connections end before that, so each new one ends an era, and its marks with it.
type lowWater struct {
	mu     sync.Mutex
	era    int64 // how often all marks were dropped
	shards map[shardKey]*waterLine
	look   map[string]time.Time // by broker: when the next look for ready shards must be a full one
	every  int                  // marksEvery, but for tests
}

// shardKey names the shards of all classes that hold the same keys.
type shardKey struct {
	broker string
	shard  int
}

// waterLine is what is known of a shard. The parts for each class are independent of each other.
type waterLine struct {
	version int64
	class   [outbox.Classes]waterMark
}

type waterMark struct {
	floor     int64 // nothing is open below
	last      int64 // the highest id that was seen
	claims    int
	deferred  bool      // many entries have just become useless
	full      time.Time // when the next claim must look at the whole shard
	candidate *candidate
}

// candidate is a mark in the making.
type candidate struct {
	id        int64
	writers   []string // that must end before
	completed bool     // they have
}

const (
	// noFloor is below every id.
	noFloor = math.MinInt64
	// marksEvery is how many claims pass between two lists of writers.
	marksEvery = 16
	// fullEvery is the time between two full looks; more where they take long, so that they stay a
	// fiftieth of the time.
	fullEvery     = 10 * time.Second
	fullLookShare = 50
)

// baseline are what a claim knows before it is made.
type baseline struct {
	era       int64
	version   int64
	floor     int64
	full      bool
	list      bool // writers afterwards
	last      int64
	candidate *candidate
	completed bool // the candidate was, before the claim
	began     time.Time
}

// sighting is what a claim has seen.
type sighting struct {
	busy    bool // another session had the shard, nothing was seen
	version int64
	first   *int64 // the first open row; nil = there is none
	told    bool   // first means something
	last    int64  // the highest id that was seen
	listed  bool
	writers []string
}

func (w *lowWater) line(broker string, shard int) *waterLine {
	key := shardKey{broker, shard % outbox.Shards}
	line := w.shards[key]
	if line == nil {
		if w.shards == nil {
			w.shards = map[shardKey]*waterLine{}
		}
		if w.look == nil {
			w.look = map[string]time.Time{}
		}
		line = &waterLine{}
		line.forget(0)
		w.shards[key] = line
	}
	return line
}

// reconnected is called when there is a new connection: to another server, perhaps.
func (w *lowWater) reconnected() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.era++
	w.shards = nil
}

// forget drops all marks.
func (l *waterLine) forget(version int64) {
	l.version = version
	for class := range l.class {
		l.class[class].floor, l.class[class].candidate = noFloor, nil
	}
}

// lower is called when rows have come back that are known. A mark in the making stays: it is about
// which rows can be seen, and which of them are open is looked at again when it is made.
func (l *waterLine) lower(version int64, lowest *int64) {
	l.version = version
	for class := range l.class {
		if lowest != nil {
			l.class[class].floor = min(l.class[class].floor, *lowest)
		}
	}
}

// take is called before a claim.
func (w *lowWater) take(broker string, shard int, now time.Time) baseline {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := w.line(broker, shard)
	mark := &line.class[shard/outbox.Shards]
	mark.claims++
	every := w.every
	if every == 0 {
		every = marksEvery
	}
	if mark.full.IsZero() {
		mark.full = now.Add(fullEvery)
	}
	b := baseline{
		era: w.era, version: line.version, floor: mark.floor, last: mark.last, full: now.After(mark.full), list: mark.claims%every == 0 || mark.deferred,
		candidate: mark.candidate, completed: mark.candidate != nil && mark.candidate.completed, began: now,
	}
	mark.deferred = false
	if b.full {
		b.floor = noFloor
	}
	return b
}

// learn is called after a claim.
func (w *lowWater) learn(broker string, shard int, b baseline, s sighting, now time.Time) {
	if s.busy {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if b.era == w.era {
		w.line(broker, shard).learn(shard, b, s, now)
	}
}

func (l *waterLine) learn(shard int, b baseline, s sighting, now time.Time) {
	mark := &l.class[shard/outbox.Shards]
	mark.last = max(mark.last, s.last)
	if b.full {
		mark.full = nextFull(b.began, now)
	}
	if s.version != l.version {
		l.forget(s.version)
		return
	}
	if !s.told {
		return
	}
	first := max(b.last, s.last) + 1 // of those that were there before the list was made
	if s.first != nil {
		first = *s.first
	} else if first == 1 {
		return
	}
	if first < mark.floor && b.full {
		l.forget(s.version)
		return
	}
	if c := mark.candidate; c != nil && c == b.candidate && b.completed {
		mark.floor, mark.candidate = max(mark.floor, min(c.id, first)), nil
	}
	if s.listed {
		mark.await(b, first, s.writers)
	}
}

// await begins a mark, or looks whether the one in the making waits for anybody still.
func (m *waterMark) await(b baseline, first int64, writers []string) {
	prepared := slices.ContainsFunc(writers, func(name string) bool { return strings.HasPrefix(name, "-1/") })
	switch c := m.candidate; {
	case c == nil:
		m.candidate = &candidate{id: first, writers: writers, completed: len(writers) == 0}
	case c == b.candidate && !prepared: // else one that was on the list may have become this one
		c.writers = slices.DeleteFunc(c.writers, func(name string) bool { return !slices.Contains(writers, name) })
		c.completed = len(c.writers) == 0
	}
}

// nextFull is when the next full look is due.
func nextFull(began, now time.Time) time.Time {
	return now.Add(max(fullEvery, fullLookShare*now.Sub(began)))
}

// lifted is called when this process has counted a change of a shard's blocks. lowest is the lowest
// id of the rows that have come back by it.
func (w *lowWater) lifted(broker string, shard int, before int64, lowest *int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if line := w.line(broker, shard); line.version == before {
		line.lower(before+1, lowest)
	}
}

// deferred is called when rows of a shard were taken out of the claim's way: many at a time, so
// that it is worth to move on soon.
func (w *lowWater) deferred(broker string, shard int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.line(broker, shard).class[shard/outbox.Shards].deferred = true
}

// floors are the marks of all shards of a broker, for a look without a claim; full says that this
// one goes without them.
func (w *lowWater) floors(broker string, now time.Time) (floors, version []int64, full bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	floors, version = make([]int64, outbox.Classes*outbox.Shards), make([]int64, outbox.Classes*outbox.Shards)
	for shard := range floors {
		line := w.line(broker, shard)
		floors[shard], version[shard] = line.class[shard/outbox.Shards].floor, line.version
	}
	due, known := w.look[broker]
	if full = known && now.After(due); full {
		for shard := range floors {
			floors[shard] = noFloor
		}
	}
	if !known {
		w.look[broker] = now.Add(fullEvery)
	}
	return floors, version, full
}

// looked is called after a full look: the next claim of each shard that has work looks at all of
// it, too.
func (w *lowWater) looked(broker string, shards []int, began, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.look[broker] = nextFull(began, now)
	for _, shard := range shards {
		w.line(broker, shard).class[shard/outbox.Shards].full = began
	}
}
