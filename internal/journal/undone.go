package journal

import (
	"cmp"
	"iter"
	"maps"
	"reflect"
	"slices"
	"sync"
)

// What becomes of an event that was raised in work which was rolled back, a transaction or a part
// of it back to a savepoint. It stays pending: the aggregate in memory still is as the event says,
// and whoever saves it again writes that state, with the event. Whoever repeats the work instead
// raises the event again, and it must not be sent twice: the new event takes the place of the old
// one, and its identity. Whoever loads the aggregate again has the state of the database, of which
// the event is not true: it is dropped. An event that was raised before the work began is none of
// these.

// span is the time between a savepoint and its rollback. What was raised in it does not belong to
// the transaction, until its aggregate is written again.
type span struct{ from, to uint64 }

// undo adds a span. In undone, the spans in it, which began at the savepoint or at those after it,
// are one with it.
func (j *Journal) undo(s span) {
	j.rollbacks = append(j.rollbacks, s)
	n := len(j.undone)
	for n > 0 && j.undone[n-1].from >= s.from {
		n--
	}
	j.undone = append(j.undone[:n], s)
}

// undoneAt is when what happened at a time was rolled back to a savepoint, for the first and for
// the last time, or 0.
func (j *Journal) undoneAt(at uint64) (first, last uint64) {
	ends := func(s span, at uint64) int { return cmp.Compare(s.to, at) }
	i, _ := slices.BinarySearchFunc(j.undone, at, ends)
	if i == len(j.undone) || at < j.undone[i].from {
		return 0, 0
	}
	first, last = j.undone[i].to, j.undone[i].to
	k, _ := slices.BinarySearchFunc(j.rollbacks, at, ends)
	for _, s := range j.rollbacks[k:] {
		if s.from < at {
			first = s.to
			break
		}
	}
	return first, last
}

// began reports whether the transaction or a savepoint of it began between two times.
func (j *Journal) began(after, before uint64) bool {
	if after < j.begun && j.begun < before {
		return true
	}
	i, _ := slices.BinarySearch(j.sets, before)
	return i > 0 && after < j.sets[i-1]
}

// settle marks the events of an aggregate that rollbacks to savepoints have undone, and takes out
// those that were raised again.
func (j *Journal) settle(recorder *Recorder) {
	recorder.mu.Lock()
	defer recorder.mu.Unlock()
	j.settleLocked(recorder)
}

func (j *Journal) settleLocked(recorder *Recorder) {
	undone := false
	for _, event := range recorder.events {
		if first, last := j.undoneAt(event.raisedAt); last > 0 && recorder.raisedBy(j, event) {
			event.undo(first, last)
		}
		undone = undone || event.undoneAt > 0
	}
	if undone && !recorder.entangled {
		recorder.replace(func(undone, event *Raised) bool { return event.SameData(&undone.Event) })
		recorder.replace(func(undone, event *Raised) bool { return j.began(undone.firstUndone, event.raisedAt) })
	}
}

// Replaced is how many events that rollbacks have undone it was raised again for.
func (r *Raised) Replaced() int { return r.replaced }

// undo marks an event.
func (r *Raised) undo(first, last uint64) {
	if r.undoneAt == 0 {
		r.firstUndone = first
	}
	r.undoneAt = max(r.undoneAt, last)
}

// maxCompared bounds how many events are compared with one that was undone to find the one that
// says the same.
const maxCompared = 100

// replace takes out the events that were undone and raised again: of the same type, after the
// rollback, and repeats says that one is the other. The new event gets the identity of the old one.
// What says the same is distinguished first, so that an event which is not raised again does not
// take the place of one that is.
func (r *Recorder) replace(repeats func(undone, event *Raised) bool) {
	r.events = slices.DeleteFunc(r.events, func(undone *Raised) bool {
		if undone.undoneAt == 0 || undone.writer != nil { // it is being written, under its id
			return false
		}
		// DeleteFunc moves events to the front while it asks, and has not moved those behind the
		// one in question.
		after, _ := slices.BinarySearchFunc(r.events, undone.firstUndone, func(e *Raised, at uint64) int { return cmp.Compare(e.raisedAt, at) })
		compared := 0
		for _, event := range r.events[after:] {
			if event.replaces || reflect.TypeOf(event.Data) != reflect.TypeOf(undone.Data) || !undone.sameValue(event) {
				continue
			}
			if compared++; compared > maxCompared {
				break
			}
			if repeats(undone, event) {
				event.replaces = true
				event.replaced += undone.replaced + 1
				event.takeOver(undone)
				return true
			}
		}
		return false
	})
}

// RolledBack notes that the transaction has rolled back: what it knows to have been raised in it
// was undone.
func (j *Journal) RolledBack() {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := clock.Add(1)
	for recorder := range j.known() {
		j.settle(recorder)
	}
	for recorder := range j.known() { // a second pass, for an aggregate may be known more than once
		recorder.mu.Lock()
		for _, event := range recorder.events {
			if event.writer == j {
				event.writer = nil
			}
			if event.raisedAt > j.begun && recorder.raisedBy(j, event) {
				event.undo(now, now)
				event.replaces = false // the next may take its place
			}
			recorder.abandon(j, event)
		}
		recorder.mu.Unlock()
	}
	for recorder := range j.known() {
		recorder.mu.Lock()
		if !j.repeats {
			recorder.part(recorder.value(j))
		}
		recorder.leave(j)
		recorder.mu.Unlock()
	}
	j.forget()
	j.over.Store(true)
}

// Touch notes an aggregate whose statement failed, so that the transaction knows it when it rolls
// back.
func (j *Journal) Touch(recorder *Recorder) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.others = append(j.others, recorder)
}

// strangers are the aggregates that the transaction has had to do with and has not written, some
// more than once.
func (j *Journal) strangers() []*Recorder {
	return slices.Concat(slices.Collect(maps.Keys(j.missed)), j.others, j.loads.all())
}

// known yields the aggregates that the transaction has had to do with, some more than once.
func (j *Journal) known() iter.Seq[*Recorder] {
	return func(yield func(*Recorder) bool) {
		for i := range j.entries {
			if recorder := j.entries[i].recorder; recorder != nil && !yield(recorder) {
				return
			}
		}
		for _, recorder := range j.strangers() {
			if !yield(recorder) {
				return
			}
		}
	}
}

// forget lets go of everything when the transaction has ended.
func (j *Journal) forget() {
	j.loads.end()
	j.entries, j.savepoints, j.sets, j.undone = nil, nil, nil, nil
	j.rollbacks, j.missed, j.roots, j.changes, j.others, j.loads, j.after = nil, nil, nil, nil, nil, nil, nil
}

// loads hears of the first event of each aggregate that a transaction has loaded. Loading a million
// rows costs it nothing.
type loads struct {
	mu        sync.Mutex
	recorders []*Recorder
	ended     bool
}

func (l *loads) raised(recorder *Recorder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.recorders = append(l.recorders, recorder)
	}
}

func (l *loads) all() []*Recorder {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.recorders)
}

func (l *loads) end() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recorders, l.ended = nil, true
}

// Loaded notes that the transaction has loaded an aggregate of the named type: should it raise
// events that the transaction does not write, the commit warns.
func (j *Journal) Loaded(recorder *Recorder, name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.loads == nil && !j.ended {
		j.loads = new(loads)
	}
	recorder.mu.Lock()
	defer recorder.mu.Unlock()
	recorder.loads, recorder.name = j.loads, name
	if len(recorder.events) > 0 {
		j.settleLocked(recorder)
	}
}

// Reloaded drops the events that were raised in work which was rolled back: the aggregate is as the
// database has it, and they are not true of it. Those stay that the transaction, nil where there is none, is
// to write since it has written the aggregate again.
func (r *Recorder) Reloaded(j *Journal) {
	if j != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = slices.DeleteFunc(r.events, func(event *Raised) bool { return event.undoneAt > 0 && !j.owes(r, event) })
}

// owes reports whether a transaction has written an aggregate since an event of it was undone. j.mu is held.
func (j *Journal) owes(recorder *Recorder, event *Raised) bool {
	return j != nil && slices.ContainsFunc(j.entries, func(e entry) bool { return e.recorder == recorder && e.at > event.undoneAt })
}

// raisedHere counts the events of an aggregate that were raised since the transaction began, and
// that are neither written nor undone.
func (j *Journal) raisedHere(recorder *Recorder) int {
	j.settle(recorder)
	recorder.mu.Lock()
	defer recorder.mu.Unlock()
	n := 0
	for _, event := range recorder.events {
		if event.raisedAt > j.begun && event.undoneAt == 0 && !event.Unconfirmed() {
			n++
		}
	}
	return n
}
