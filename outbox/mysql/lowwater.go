package mysql

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// lowWater remembers below which id a shard holds nothing open but rows that it knows, so that claims
// begin there. Published rows leave entries in the claim's index that InnoDB removes only when no
// transaction can see the rows as they were; while an old one is open, as a dump's is, a claim that
// begins at the shard's first id goes through all of them. Marks are made where claims have become
// slow, and not before.
//
// A claim must never pass a row by that is open, or a later one of its key could be delivered before
// it. Ids are handed out in ascending order, and a row shows when its transaction commits. So a mark
// is made in these steps, of which each comes after the one before:
//
//   - The highest id is read, of rows that are not committed, too. Whoever has a lower id has taken it.
//   - The transactions that write are listed. One that is seen without a statement has written all rows
//     for which it has taken ids. The others are looked for in later lists, until each has ended or was
//     seen without a statement. From then on every row below that highest id, which is the horizon,
//     is in the table, committed or not, or never will be.
//   - The rows that are open between the last mark and the horizon are read as they are, committed or
//     not.
//   - They are read as committed, with the version of the shard: the first open one, or the horizon, is the
//     new mark. Those from the step before that are below it are late: in transactions that have not
//     ended.
//
// A claim reads what is behind the mark, and the late rows by their ids, in one statement: so a late
// row comes as soon as it is committed, and in its place. Whoever makes a row open again counts that
// in the version; a claim uses the mark where it reads the same version. What a claim of this
// process brings back itself is known by its ids, and becomes late.
//
// An insert takes its id a moment before the server lists its transaction, unless that has locked
// something before; as has each that locks its keys. Between the two steps lies a time, see
// settleTime. Rows that an operator makes open without counting, or inserts with an id of the past, are
// found by a full look now and then, as would be such a one.
//
// A server that has lost what it had committed hands out ids again that are below the marks. All marks
// are those of one server since its start, and go with it.
type lowWater struct {
	mu       sync.Mutex
	server   string   // in marks
	name     string   // of the server
	started  int64    // of the server, in seconds
	refused  bool     // this server does not tell what marks need
	horizon  int64    // see above; 0 = not known
	sighted  sighting // a horizon in the making
	shards   map[shardKey]*waterLine
	looks    map[string]time.Time // by broker: when the next look for ready shards must be a full one
	next     time.Time            // before that no mark is made
	making   bool                 // marks, at this moment
	closed   bool
	makers   sync.WaitGroup
	slow     time.Duration // slowClaim, but for tests
	settling time.Duration // settleTime, but for tests
}

type shardKey struct {
	broker string
	shard  int
}

// sighting is the highest id as it was at a time.
type sighting struct {
	above  int64     // one more than that; 0 = none
	next   time.Time // before that the transactions are not listed
	stale  int       // how often the server has answered with an old list
	listed bool
	busy   []string // transactions that executed a statement whenever they were listed
}

// waterLine is what is known of a shard: a mark, or that claims of it are slow.
type waterLine struct {
	mark waterMark
	slow time.Duration // what a slow one has taken; 0 = none was
	full time.Time     // when the next claim must look at the whole shard
}

// waterMark is a mark, and what it is based on.
type waterMark struct {
	server  string
	version int64
	floor   int64   // 0 = none
	late    []int64 // rows below that may be open; sorted; replaced, never changed
}

// from is the id at which a claim begins.
func (m *waterMark) from() int64 {
	if m.floor == 0 {
		return math.MinInt64
	}
	return m.floor
}

const (
	// slowClaim is how long the reading of a window takes for which marks are made.
	slowClaim = 5 * time.Millisecond
	// settleTime lies between the sight of an id and the list of the transactions that may have a lower
	// one. It is also longer than the time for which InnoDB answers with an old list.
	settleTime = 150 * time.Millisecond
	// markShare is which part of the time may go into making marks.
	markShare = 20
	// maxLate bounds the late rows of a shard.
	maxLate = 200
	// fullEvery is the time between two full looks; more where they take long, so that they stay a
	// fiftieth of the time.
	fullEvery     = 10 * time.Second
	fullLookShare = 50
	// manyLate stands for the time of a claim where a mark has many late rows.
	manyLate = time.Second
	// markRest is the time to the next marks where these were of no use.
	markRest = 5 * time.Second
	// roundTrips is how many round trips the reading of a window may take in addition to slowClaim.
	roundTrips = 4
	// markAgain is after how long a server is asked again that has refused.
	markAgain = 10 * time.Minute
)

func (w *lowWater) line(broker string, shard int) *waterLine {
	key := shardKey{broker, shard}
	line := w.shards[key]
	if line == nil {
		if w.shards == nil {
			w.shards, w.looks = map[shardKey]*waterLine{}, map[string]time.Time{}
		}
		line = &waterLine{}
		w.shards[key] = line
	}
	return line
}

// mark is that of a shard. ok is false where there is none, or a full look is due.
func (w *lowWater) mark(broker string, shard int, now time.Time) (m waterMark, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := w.line(broker, shard)
	return line.mark, line.mark.floor > 0 && now.Before(line.full)
}

// marks are those of all shards of a broker; a full look takes none.
func (w *lowWater) marks(broker string, shards int, now time.Time) []waterMark {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]waterMark, shards)
	if now.After(w.looks[broker]) {
		return all
	}
	for shard := range all {
		all[shard] = w.line(broker, shard).mark
	}
	return all
}

// read is called after a claim has read a shard: by which mark, none for all of it, and what rows it has
// seen. One below the mark that is not late has come there in a way that marks know nothing of, such as
// an operator's or that of ids that began anew, so that nothing of what is known counts any more.
func (w *lowWater) read(broker string, shard int, by waterMark, rows []driver.Row, began, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := w.line(broker, shard)
	if took := now.Sub(began); took > w.slowClaim() {
		line.slow = max(line.slow, took)
	}
	if by.floor > 0 || line.mark.floor == 0 {
		return
	}
	line.full = nextFull(began, now)
	for i := range rows {
		if _, late := slices.BinarySearch(line.mark.late, rows[i].ID); rows[i].ID < line.mark.floor && !late {
			w.drop()
			return
		}
	}
}

// drop forgets all that is known of this server.
func (w *lowWater) drop() {
	w.horizon, w.sighted, w.shards, w.looks = 0, sighting{}, nil, nil
}

// looked is called after a look for ready shards by some marks. Was it a full one, the next claim of each
// shard that has work looks at all of it, too.
func (w *lowWater) looked(broker string, by []waterMark, found []int, began, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	took := now.Sub(began)
	full := !slices.ContainsFunc(by, func(m waterMark) bool { return m.floor > 0 })
	for shard := range by {
		if line := w.line(broker, shard); took > 2*w.slowClaim() {
			line.slow = max(line.slow, took)
		}
	}
	if !full {
		return
	}
	w.looks[broker] = nextFull(began, now)
	for _, shard := range found {
		if shard >= 0 {
			w.line(broker, shard).full = time.Time{}
		}
	}
}

func nextFull(began, now time.Time) time.Time {
	return now.Add(max(fullEvery, fullLookShare*now.Sub(began)))
}

// forget is called when a mark does not hold any more.
func (w *lowWater) forget(broker string, shard int, version int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if line := w.line(broker, shard); line.mark.version == version {
		line.mark = waterMark{}
	}
}

// changed is called when this process has counted a change of a shard, by which these rows have come
// back.
func (w *lowWater) changed(broker string, shard int, before int64, back []int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, line := range w.shards { // the version is that of all classes
		if key.broker != broker || key.shard%outbox.Shards != shard%outbox.Shards || line.mark.floor == 0 || line.mark.version != before {
			continue
		}
		line.mark.version++
		// A row that was given another priority meanwhile comes back in another class. Claims pass over those
		// that are none of theirs.
		late := merged(line.mark.late, back)
		late = late[:lowerThan(late, line.mark.floor)]
		line.mark.late = late
		if len(late) > maxLate/2 { // so that those that are finished go
			line.slow = max(line.slow, manyLate)
		}
		if len(late) > maxLate {
			line.mark = waterMark{}
		}
	}
}

// merged are the ids of two lists, each once and in their order.
func merged(a, b []int64) []int64 {
	ids := slices.Concat(a, b)
	slices.Sort(ids)
	return slices.Compact(ids)
}

// lowerThan is how many of some sorted ids are lower than another one.
func lowerThan(ids []int64, id int64) int {
	n, _ := slices.BinarySearch(ids, id)
	return n
}

// begin reports which of some shards are slow, where it is time to make marks. Until end is called it
// is for no other caller.
func (w *lowWater) begin(broker string, shards []int, now time.Time) (slow []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.making || w.closed || now.Before(w.next) {
		return nil
	}
	for _, shard := range shards {
		if w.line(broker, shard).slow > 0 {
			slow = append(slow, shard)
		}
	}
	if w.making = len(slow) > 0; w.making {
		w.makers.Add(1)
	}
	return slow
}

// end is called when marks were made, or could not; of how many shards, with how long that took.
func (w *lowWater) end(broker string, shards []int, made int, began, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.makers.Done()
	took := now.Sub(began)
	w.making, w.next = false, now.Add(max(w.settleTime(), markShare*took))
	switch {
	case w.refused:
		w.next = now.Add(markAgain)
	case made > 0 && took < time.Duration(made)*w.slowClaim(): // there was little to go through
		w.next = now.Add(markRest)
	}
	for _, shard := range shards {
		w.line(broker, shard).slow = 0
	}
}

// slower are those of some slow shards that were not so for their round trips alone.
func (w *lowWater) slower(broker string, shards []int, roundTrip time.Duration) (slow []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, shard := range shards {
		if w.slow > 0 || w.line(broker, shard).slow > slowClaim+roundTrips*roundTrip {
			slow = append(slow, shard)
		}
	}
	return slow
}

// close has no more marks made, and waits for those that are.
func (w *lowWater) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.makers.Wait()
}

// met is called with the server at which marks are to be made or used: what it is called, and since when
// it runs, in seconds. It returns the name that marks have for it, and whether they are its, and not
// another one's, in which case they are dropped.
func (w *lowWater) met(name string, started int64, refuses bool) (server string, same bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if same = w.server != "" && w.name == name && max(started-w.started, w.started-started) <= roundedBy; !same {
		w.name, w.started = name, started
		w.server = fmt.Sprint(name, "/", started)
		w.drop()
	}
	w.refused = refuses
	return w.server, same
}

// roundedBy is by how many seconds the start of a server, of which it tells the time that has passed,
// differs from one question to the next.
const roundedBy = 2

// refuse is called when a server does not tell what marks need.
func (w *lowWater) refuse() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = true
}

func (w *lowWater) refuses() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused
}

// sight is called with one more than the highest id that there is.
func (w *lowWater) sight(server string, above int64, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.server == server && w.sighted.above == 0 {
		w.sighted = sighting{above: above, next: now.Add(w.settleTime())}
	}
}

// listDue reports whether a list of the transactions is of use.
func (w *lowWater) listDue(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sighted.above > 0 && !now.Before(w.sighted.next)
}

// listedBefore is called when the server has answered with an old list, since another session has asked a
// moment before; as each question, this one keeps the list from being renewed. So all ask less often then.
func (w *lowWater) listedBefore(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &w.sighted
	s.stale = min(s.stale+1, mostStale)
	pause := w.settleTime() << s.stale
	s.next = now.Add(pause/2 + rand.N(pause))
}

// mostStale bounds these pauses to about five seconds.
const mostStale = 5

// listed is called with the transactions that execute a statement.
func (w *lowWater) listed(server string, busy []string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &w.sighted
	if w.server != server || s.above == 0 {
		return
	}
	s.next, s.stale = now.Add(w.settleTime()), 0
	if !s.listed {
		s.busy, s.listed = busy, true
	} else {
		s.busy = slices.DeleteFunc(s.busy, func(name string) bool { return !slices.Contains(busy, name) })
	}
	if len(s.busy) == 0 {
		w.horizon, w.sighted = max(w.horizon, s.above), sighting{}
	}
}

// raise replaces a mark by one that was made of it.
func (w *lowWater) raise(broker string, shard int, from, mark waterMark, began, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := w.line(broker, shard)
	if w.server != mark.server || mark.floor > w.horizon || line.mark.version != from.version || line.mark.floor != from.floor || len(mark.late) > maxLate {
		return
	}
	if line.mark.floor == 0 {
		line.full = nextFull(began, now)
		if _, ok := w.looks[broker]; !ok {
			w.looks[broker] = nextFull(began, now)
		}
	}
	line.mark = mark
}

// basis is what a mark of a shard can be made of.
func (w *lowWater) basis(broker string, shard int) (from waterMark, horizon int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.line(broker, shard).mark, w.horizon
}

func (w *lowWater) slowClaim() time.Duration  { return cmp.Or(w.slow, slowClaim) }
func (w *lowWater) settleTime() time.Duration { return cmp.Or(w.settling, settleTime) }
