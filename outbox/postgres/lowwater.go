package postgres

import (
	"cmp"
	"fmt"
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
// A transaction may be open for long. So where B finds some of the first list again, the lower one of x
// and y is a mark of its own, above the other one: what is below it can only come from these. A claim
// uses it where its snapshot sees none of them, which is so until one of them ends, and which the
// statement tests. It rises while they last: who was there before the first of such marks is on all
// later lists.
//
// Rows that an operator makes open without counting, or inserts with an id of the past, are found
// by a full look now and then, which lowers the marks. Beside an old transaction it reads all that was
// published meanwhile, so claims do not wait for it.
//
// Ids ascend as long as the server keeps what it has committed. One that has not (a standby that
// did not have everything was promoted, a backup was restored, a crash took commits that had not
// waited for the disk) hands out ids again that are below the marks. All sessions end before that. So
// each session has a number, in a setting of the session, wherever the pool and the pooler have it from: that
// of a session that was met before and is still alive on the server, so that a new connection
// changes nothing, or else one of its own. A statement uses no mark in a session whose number was not met
// before, and when one is met all marks are dropped.
type lowWater struct {
	mu       sync.Mutex
	era      int64   // how often all marks were dropped
	sessions []int64 // that were met; replaced, never changed
	shards   map[shardKey]*waterLine
	look     map[string]time.Time // by broker: when the next full look is due
	looking  bool                 // one is in progress
	every    int                  // marksEvery, but for tests
	slow     time.Duration        // slowClaim, but for tests
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
	deferred  bool // many entries have just become useless
	slow      bool // claims take long, so that a mark is worth two lists
	candidate *candidate
	// Nothing is open below above while none of these transactions has ended; nil = no such mark.
	above   int64
	writers []int64
}

// candidate is a mark in the making.
type candidate struct {
	id        int64
	writers   map[string]int64 // that must end before, with their numbers; replaced, never changed
	listed    bool             // again, after the first time
	completed bool             // they have ended
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
	// slowClaim is how long a claim takes for which marks are made as soon as possible, and how long a
	// poll waits for a full look.
	slowClaim = 20 * time.Millisecond
	// lookTime bounds a full look.
	lookTime = time.Minute
	// maxSessions bounds how many sessions are remembered. Those that have ended are never met again.
	maxSessions = 100
)

// baseline are what a claim knows before it is made.
type baseline struct {
	era       int64
	version   int64
	floor     int64
	list      bool // writers afterwards
	last      int64
	candidate *candidate
	completed bool             // the candidate was, before the claim
	remaining map[string]int64 // of the candidate's writers, before the claim; nil where they were not listed again
	sessions  []int64          // in which the marks hold
	above     int64
	writers   []int64 // never nil
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
	writers map[string]int64
	session int64
}

func (w *lowWater) line(broker string, shard int) *waterLine {
	key := shardKey{broker, shard % outbox.Shards}
	line := w.shards[key]
	if line == nil {
		if w.shards == nil {
			w.shards = map[shardKey]*waterLine{}
		}
		line = &waterLine{}
		line.forget(0)
		w.shards[key] = line
	}
	return line
}

// met is called with the session in which something was read: of another server, perhaps, where it is
// new.
func (w *lowWater) met(session int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Contains(w.sessions, session) {
		return
	}
	w.era++
	w.shards = nil
	known := w.sessions[max(0, len(w.sessions)-maxSessions+1):]
	w.sessions = append(slices.Clone(known), session)
}

// forget drops all marks.
func (l *waterLine) forget(version int64) {
	l.version = version
	for class := range l.class {
		mark := &l.class[class]
		mark.floor, mark.candidate, mark.writers = noFloor, nil, nil
	}
}

// lower is called when rows have come back that are known. A mark in the making stays: it is about
// which rows can be seen, and which of them are open is looked at again when it is made.
func (l *waterLine) lower(version int64, lowest *int64) {
	l.version = version
	for class := range l.class {
		if lowest != nil {
			mark := &l.class[class]
			mark.floor, mark.above = min(mark.floor, *lowest), min(mark.above, *lowest)
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
	b := w.baseline(line, mark)
	b.list, b.began = mark.claims%every == 0 || mark.deferred || mark.slow, now
	if c := mark.candidate; c != nil {
		b.candidate, b.completed = c, c.completed
		if c.listed {
			b.remaining = c.writers
		}
	}
	mark.deferred = false
	return b
}

// baseline is what is known of a shard.
func (w *lowWater) baseline(line *waterLine, mark *waterMark) baseline {
	b := baseline{era: w.era, version: line.version, floor: mark.floor, last: mark.last, sessions: w.sessions, above: mark.above, writers: mark.writers}
	if b.writers == nil {
		b.writers = []int64{}
	}
	if b.sessions == nil {
		b.sessions = []int64{}
	}
	return b
}

// peek is what is known of a shard, for one that only reads it.
func (w *lowWater) peek(broker string, shard int) baseline {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := w.line(broker, shard)
	return w.baseline(line, &line.class[shard/outbox.Shards])
}

// learn is called after a claim.
func (w *lowWater) learn(broker string, shard int, b baseline, s sighting, now time.Time) {
	if s.busy {
		return
	}
	w.met(s.session)
	w.mu.Lock()
	defer w.mu.Unlock()
	if b.era == w.era {
		line := w.line(broker, shard)
		line.class[shard/outbox.Shards].slow = now.Sub(b.began) > cmp.Or(w.slow, slowClaim)
		line.learn(shard, b, s)
	}
}

func (l *waterLine) learn(shard int, b baseline, s sighting) {
	mark := &l.class[shard/outbox.Shards]
	mark.last = max(mark.last, s.last)
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
	mark.settle(b, first)
	if s.listed {
		mark.await(b, first, s.writers)
	}
}

// settle makes the mark of which a claim has seen what it needs.
func (m *waterMark) settle(b baseline, first int64) {
	c := m.candidate
	switch {
	case c == nil || c != b.candidate:
	case b.completed:
		m.floor, m.writers, m.candidate = max(m.floor, min(c.id, first)), nil, nil
	case b.remaining != nil:
		numbers := make([]int64, 0, len(b.remaining))
		for _, number := range b.remaining {
			numbers = append(numbers, number)
		}
		if !slices.Contains(numbers, 0) { // such a one could not be told from one that has ended
			m.above, m.writers, m.candidate = min(c.id, first), numbers, nil
		}
	}
}

// await begins a mark, or looks whether the one in the making waits for anybody still.
func (m *waterMark) await(b baseline, first int64, writers map[string]int64) {
	switch c := m.candidate; c {
	case nil:
		m.candidate = &candidate{id: first, writers: writers, completed: len(writers) == 0}
	case b.candidate:
		c.writers, c.listed = remaining(c.writers, writers), true
		c.completed = len(c.writers) == 0
	}
}

// remaining are those of a list that are on a later one, too. A transaction keeps its name until it is
// prepared, and its number, once it has one, until it ends.
func remaining(before, now map[string]int64) map[string]int64 {
	numbers, prepared := map[int64]bool{}, false
	for name, number := range now {
		numbers[number] = number != 0
		prepared = prepared || strings.HasPrefix(name, "-1/")
	}
	still := map[string]int64{}
	for name, number := range before {
		if later, ok := now[name]; ok {
			still[name] = cmp.Or(number, later)
		} else if numbers[number] || number == 0 && prepared {
			still[name] = number
		}
	}
	return still
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

// shardMarks are those of all shards of a broker, for a look without a claim.
type shardMarks struct {
	floors, versions, above, sessions []int64
	writers                           []string // the texts of arrays
}

// marks are those of all shards of a broker, or none.
func (w *lowWater) marks(broker string, none bool) (m shardMarks) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m.add(w, broker, none)
	return m
}

// due reports whether a full look is, which the caller then makes: one at a time, so that the pool has
// connections for claims. slow is how long a poll waits for it.
func (w *lowWater) due(broker string, now time.Time) (due bool, slow time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, known := w.look[broker]
	if w.look == nil {
		w.look = map[string]time.Time{}
	}
	if !known {
		w.look[broker] = now.Add(fullEvery)
	}
	due = known && now.After(at) && !w.looking
	w.looking = w.looking || due
	return due, cmp.Or(w.slow, slowClaim)
}

// known are the marks of all shards of some brokers, one after the other, for one that only counts rows.
func (w *lowWater) known(brokers []string) (m shardMarks) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, broker := range brokers {
		m.add(w, broker, false)
	}
	return m
}

// add appends the marks of all shards of a broker, or that there are none.
func (m *shardMarks) add(w *lowWater, broker string, none bool) {
	for shard := range outbox.Classes * outbox.Shards {
		line := w.line(broker, shard)
		b := w.baseline(line, &line.class[shard/outbox.Shards])
		if none {
			b.floor, b.writers = noFloor, nil
		}
		m.floors, m.versions, m.above, m.sessions = append(m.floors, b.floor), append(m.versions, b.version), append(m.above, b.above), b.sessions
		m.writers = append(m.writers, "{"+strings.ReplaceAll(strings.Trim(fmt.Sprint(b.writers), "[]"), " ", ",")+"}")
	}
}

// looked is called after a full look. first are the first open rows below the marks of the shards that
// have some. A mark in the making may be of a time before them.
func (w *lowWater) looked(broker string, first map[int]int64, began, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looking, w.look[broker] = false, now.Add(max(fullEvery, fullLookShare*now.Sub(began)))
	for shard, id := range first {
		mark := &w.line(broker, shard).class[shard/outbox.Shards]
		mark.floor, mark.above, mark.candidate = min(mark.floor, id), min(mark.above, id), nil
	}
}
