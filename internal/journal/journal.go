package journal

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gorm-fanout/fanout/envelope"
)

// A Journal belongs to one database transaction. It notes which aggregates the transaction wrote
// and which events were published without one, follows its savepoints, and tells at the commit what
// is to be flushed. It is safe for concurrent use, as a transaction is.
type Journal struct {
	mu         sync.Mutex
	begun      uint64
	repeats    bool // the transaction is that of an attempt, which takes back what it raised
	entries    []entry
	savepoints []savepoint
	sets       []uint64                // when savepoints were set, also those that are gone
	rollbacks  []span                  // to savepoints, in order
	undone     []span                  // what they have undone: in order, none within another
	missed     map[*Recorder]miss      // aggregates that statements wrote in vain, by root
	roots      map[*Recorder]*Recorder // of values that got recorders of their own: see goneBack
	changes    []change                // what missed was before, while a savepoint is set
	others     []*Recorder             // known to the transaction, without an entry: of statements that failed or were rolled back
	ofCopies   map[string]int          // events that Collect has left, since they are those of copies, by type name
	loads      *loads                  // made for the first aggregate that is loaded
	after      []func()
	failed     error // why the transaction must not commit
	failedAt   uint64
	ended      bool
	over       atomic.Bool // committed or rolled back
}

// ErrNoTransaction is uow.ErrNoTransaction.
var ErrNoTransaction = errors.New("uow: there is no transaction: an event must be published in the transaction that it reports on, inside db.Transaction or uow.Do")

var errEnded = fmt.Errorf("uow: the transaction has been committed or rolled back: %w", ErrNoTransaction)

// entry is one thing that the transaction wrote: an aggregate, or an event without one.
type entry struct {
	recorder *Recorder
	event    *Raised // set when there is no aggregate
	value    uintptr // where the one of those that share the recorder is, or was; 0 where that is not known
	source   envelope.Source
	context  *envelope.Context // shared by the aggregates of one statement
	at       uint64
}

// miss is why an aggregate is not tracked although a statement was to write it: it changed no row,
// or it changed an unknown part of a batch.
type miss struct {
	name  string // of its type, for the warning
	doubt error  // for the second case
	at    uint64
}

// change is what missed said of an aggregate before.
type change struct {
	recorder *Recorder
	before   miss
	missed   bool
}

// savepoint remembers how long the lists of the journal were.
type savepoint struct {
	name                    string
	entries, after, changes int
	at                      uint64
}

// Begin notes that the transaction has begun, and whether it may be repeated. It comes before all else.
func (j *Journal) Begin(repeats bool) { j.begun, j.repeats = clock.Add(1), repeats }

// End notes that the transaction is about to commit or to roll back. What comes after would be in
// no one's hands: Track, Publish and AfterCommit return an error that wraps ErrNoTransaction.
func (j *Journal) End() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ended = true
}

// Use notes that the transaction works on an aggregate, with one of the values that share its recorder;
// nil where that is not known. It comes before all else about an aggregate that a statement was given.
func (j *Journal) Use(recorder *Recorder, value *Carrier) {
	recorder.mu.Lock()
	defer recorder.mu.Unlock()
	recorder.use(j, value)
}

// Track notes that the transaction wrote an aggregate: what it has raised, or will raise until the
// commit, is flushed as raised by source. value is as in Use.
func (j *Journal) Track(recorder *Recorder, value *Carrier, source envelope.Source, context *envelope.Context) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended {
		return errEnded
	}
	root := j.root(recorder)
	if _, missed := j.missed[root]; missed {
		j.remember(root)
		delete(j.missed, root)
	}
	j.entries = append(j.entries, entry{recorder: recorder, value: value.address(), source: source, context: context, at: clock.Add(1)})
	return nil
}

// Untouched notes that a statement on an aggregate changed no row, so that its events stay pending.
// name is for the warning.
func (j *Journal) Untouched(recorder *Recorder, name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if recorder = j.root(recorder); j.missed[recorder].doubt == nil { // a doubt stays until the aggregate is written
		j.miss(recorder, miss{name: name, at: clock.Add(1)})
	}
}

// PassedOver notes which of some aggregates, by the names of their types, no statement of the transaction was given.
// Their events stay pending. The map is used up.
func (j *Journal) PassedOver(names map[*Recorder]string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := len(j.entries) - 1; i >= 0 && len(names) > 0; i-- { // they were written just now
		delete(names, j.entries[i].recorder)
	}
	for recorder, name := range names {
		if _, missed := j.missed[j.root(recorder)]; !missed && !slices.Contains(j.others, recorder) {
			j.miss(j.root(recorder), miss{name: name, at: clock.Add(1)})
		}
	}
}

// Doubt notes that a statement on several aggregates changed only some, none of which had events.
// Should this one have some by the commit that nothing else accounts for, the commit fails with
// err.
func (j *Journal) Doubt(recorder *Recorder, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.miss(j.root(recorder), miss{doubt: err, at: clock.Add(1)})
}

// root is the recorder that one was parted from in this transaction, or itself.
func (j *Journal) root(recorder *Recorder) *Recorder {
	if root := j.roots[recorder]; root != nil {
		return root
	}
	return recorder
}

func (j *Journal) miss(recorder *Recorder, m miss) {
	if j.missed == nil {
		j.missed = make(map[*Recorder]miss)
	}
	j.remember(recorder)
	j.missed[recorder] = m
}

// remember keeps what missed says of an aggregate, for a rollback to a savepoint.
func (j *Journal) remember(recorder *Recorder) {
	if len(j.savepoints) > 0 {
		before, missed := j.missed[recorder]
		j.changes = append(j.changes, change{recorder: recorder, before: before, missed: missed})
	}
}

// Publish notes an event without an aggregate.
func (j *Journal) Publish(event *Raised, context *envelope.Context) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended {
		return errEnded
	}
	j.entries = append(j.entries, entry{event: event, context: context, at: clock.Add(1)})
	return nil
}

// AfterCommit keeps a function for after the commit. A rollback to a savepoint takes back those
// kept since.
func (j *Journal) AfterCommit(f func()) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended {
		return errEnded
	}
	j.after = append(j.after, f)
	return nil
}

// Savepoint notes that a savepoint was set. Names may repeat; the last one of a name counts.
func (j *Journal) Savepoint(name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	at := clock.Add(1)
	j.sets = append(j.sets, at)
	j.savepoints = append(j.savepoints, savepoint{
		name: name, entries: len(j.entries), after: len(j.after), changes: len(j.changes), at: at,
	})
}

// RollbackTo notes that the transaction went back to a savepoint, which stays set. A name that the
// database knows and the journal does not was set behind its back, so that what was undone cannot
// be told: Err says so at the commit.
func (j *Journal) RollbackTo(name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	i := j.find(name)
	if i < 0 {
		j.failed, j.failedAt = &SavepointError{Name: name}, 0 // nothing can fix it
		return
	}
	back := j.savepoints[i]
	if j.failedAt > back.at {
		j.failed, j.failedAt = nil, 0
	}
	j.undo(span{from: back.at, to: clock.Add(1)})
	before := len(j.others)
	for k := len(j.entries) - 1; k >= back.entries; k-- {
		if recorder := j.entries[k].recorder; recorder != nil {
			j.others = append(j.others, recorder)
		}
	}
	written := slices.Clone(j.others[before:])
	for _, c := range slices.Backward(j.changes[back.changes:]) {
		if c.missed {
			j.missed[c.recorder] = c.before
		} else {
			delete(j.missed, c.recorder)
			j.others = append(j.others, c.recorder)
		}
	}
	clear(j.entries[back.entries:])
	clear(j.changes[back.changes:])
	j.entries, j.changes = j.entries[:back.entries], j.changes[:back.changes]
	j.after = j.after[:back.after]
	j.savepoints = j.savepoints[:i+1]
	for _, recorder := range written {
		j.goneBack(recorder)
	}
}

// Release notes that a savepoint, and those set after it, were released: their work belongs to what
// is around them.
func (j *Journal) Release(name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	i := j.find(name)
	if i < 0 {
		return
	}
	if j.savepoints = j.savepoints[:i]; i == 0 {
		j.changes = nil // nothing can go back to them
	}
}

func (j *Journal) find(name string) int {
	for i, s := range slices.Backward(j.savepoints) {
		if s.name == name {
			return i
		}
	}
	return -1
}

// Fail notes that a statement has written what cannot be distinguished, so that the transaction
// must not commit, even if the caller ignores the statement's error. A rollback to a savepoint set
// before it fixes that.
func (j *Journal) Fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failed == nil {
		j.failed, j.failedAt = err, clock.Add(1)
	}
}

// Err is why the transaction must not commit: what was given to Fail, or a *SavepointError.
func (j *Journal) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.failed
}

// SavepointError is the answer to a commit after a rollback to a savepoint that was set where
// the library did not see it: on the *sql.Tx itself, or among several statements in one text.
type SavepointError struct{ Name string }

// Error implements error.
func (e *SavepointError) Error() string {
	return fmt.Sprintf("uow: the transaction went back to savepoint %q, which was set behind GORM's back, so it is not known which events it undid: "+
		"set savepoints with tx.SavePoint, tx.Transaction or a tx.Exec of its own", e.Name)
}

// Left returns the aggregates that keep pending events when the given ones are flushed, although
// the transaction was to write them, and did not, or loaded them before it raised the events: type
// name to number of events. err is that of one of which it is not known whether it was written.
func (j *Journal) Left(flush []Flush) (left map[string]int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	unwritten := j.loads.all()
	left = maps.Clone(j.ofCopies)
	if len(j.missed) == 0 && len(unwritten) == 0 && len(j.roots) == 0 {
		return left, err
	}
	keeps := flushedOf(flush)
	add := func(name string, n int) {
		if left == nil {
			left = make(map[string]int)
		}
		if left[name] += max(n, 0); left[name] == 0 {
			delete(left, name)
		}
	}
	for recorder, m := range j.missed {
		n := keeps.of(recorder) + j.keepsParted(keeps, recorder)
		if m.doubt == nil {
			add(m.name, n)
		} else if n > 0 {
			err = m.doubt
		}
	}
	for own, name := range j.partedFromWritten() {
		add(name, keeps.of(own))
	}
	counted := make(map[*Recorder]bool) // one that was loaded again is there again
	for _, recorder := range unwritten {
		if _, missed := j.missed[j.root(recorder)]; !missed && keeps[recorder] == 0 && !counted[recorder] {
			counted[recorder] = true
			add(recorder.name, j.raisedHere(recorder))
		}
	}
	return left, err
}

// partedFromWritten yields recorders of values that were not written, and that an aggregate was parted from which was,
// by a copy: whether their events are those of the copy cannot be told.
func (j *Journal) partedFromWritten() iter.Seq2[*Recorder, string] {
	return func(yield func(*Recorder, string) bool) {
		for own, root := range j.roots {
			_, missed := j.missed[root]
			if name := j.nameOf(root); name != "" && !missed && j.nameOf(own) == "" && !yield(own, name) {
				return
			}
		}
	}
}

// keepsParted is how many events are kept by values that got recorders of their own.
func (j *Journal) keepsParted(keeps flushed, recorder *Recorder) (n int) {
	for own, root := range j.roots {
		if root == recorder {
			n += keeps.of(own)
		}
	}
	return n
}

// flushed is how many events of each aggregate a commit writes.
type flushed map[*Recorder]int

func flushedOf(flush []Flush) flushed {
	f := make(flushed)
	for i := range flush {
		f[flush[i].recorder]++
	}
	return f
}

// of is how many events an aggregate keeps.
func (f flushed) of(recorder *Recorder) int { return recorder.Len() - f[recorder] }

// nameOf is the name of the type of an aggregate that the transaction has written; empty where it has not. j.mu is held.
func (j *Journal) nameOf(recorder *Recorder) string {
	for i := range j.entries {
		if j.entries[i].recorder == recorder {
			return j.entries[i].source.Aggregate
		}
	}
	return ""
}

// Committed clears exactly the events that were flushed and returns the functions to run now.
func (j *Journal) Committed(flushed []Flush) []func() {
	for i := range flushed {
		flushed[i].committed.Store(true)
	}
	for i := range flushed {
		// The events of one aggregate mostly stand together, and the first pass over its recorder
		// takes out all of them.
		if recorder := flushed[i].recorder; recorder != nil && (i == 0 || recorder != flushed[i-1].recorder) {
			recorder.sweep()
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, recorder := range j.strangers() {
		j.settle(recorder)
	}
	for recorder := range j.known() {
		recorder.mu.Lock()
		recorder.leave(j)
		recorder.mu.Unlock()
	}
	for i := range j.entries {
		if e := &j.entries[i]; e.recorder != nil && e.source.Version > 0 {
			e.recorder.WroteVersion(e.source.Version)
		}
	}
	after := j.after
	j.forget()
	j.over.Store(true)
	return after
}
