package journal

import (
	"fmt"
	"iter"
	"slices"
)

// Copies of an aggregate share its recorder, and so do requests that have copies of it from a cache, or
// one aggregate from whoever loads it for all of them. What tells them apart is where the value stands: an
// event knows on which it was raised, and a recorder which transactions work on it, with which values.
//
// An event that a transaction has rolled back goes with a save of the value that raised it, or that the
// transaction was given. It is none of another value's that raised it and was given to that transaction
// itself. Else it cannot be told: a value that is passed by value looks like a copy from a cache.

// SharedEventsError says that an aggregate has pending events that were rolled back, and that it is not
// known whether they are those of the value that is saved now or of a copy of it.
type SharedEventsError struct {
	// Aggregate is the name of the type, and ID its key.
	Aggregate, ID string
	// Event is the Go type of the first of them.
	Event string
}

// Error implements error.
func (e *SharedEventsError) Error() string {
	return fmt.Sprintf("uow: commit the events of %s %s: a transaction that was rolled back has left %s on it, "+
		"which was raised on a copy, and whether this is the same one cannot be told: to send it, save the variable on which Raise was called, "+
		"or repeat the work by uow.Do with uow.WithRetry; to drop it, load the aggregate again or call uow.Discard(&aggregate); "+
		"give copies that come from a cache lists of their own: aggregate.Aggregate = uow.Aggregate{}", e.Aggregate, e.ID, e.Event)
}

// user is a transaction that has not ended and works on an aggregate.
type user struct {
	journal *Journal
	value   *Carrier // with which one of those that share it; nil where that is not known, or there were no events
	at      uintptr  // where value is, or was, so that values without events are not kept
}

// use notes that a transaction works on an aggregate. r.mu is held.
func (r *Recorder) use(j *Journal, value *Carrier) {
	u := user{j, value, value.address()}
	if len(r.events) == 0 {
		u.value = nil
	}
	for known := range r.all() {
		if known == u {
			return
		}
	}
	if r.user.journal == nil || r.user.journal.over.Load() {
		r.user = u
	} else {
		r.users = append(slices.DeleteFunc(r.users, func(u user) bool { return u.journal.over.Load() }), u)
	}
	for known := range r.all() {
		if known.journal != j && (known.at == u.at || known.at == 0 || u.at == 0) {
			r.entangled = true
		}
	}
}

// usesValue reports whether a transaction works with a value.
func (r *Recorder) usesValue(j *Journal, value *Carrier) bool {
	for u := range r.all() {
		if value != nil && u.journal == j && u.at == value.address() {
			return true
		}
	}
	return false
}

// all yields the users that have not ended.
func (r *Recorder) all() iter.Seq[user] {
	return func(yield func(user) bool) {
		if r.user.journal != nil && !r.user.journal.over.Load() && !yield(r.user) {
			return
		}
		for _, u := range r.users {
			if !u.journal.over.Load() && !yield(u) {
				return
			}
		}
	}
}

// leave is called when a transaction has ended.
func (r *Recorder) leave(j *Journal) {
	r.users = slices.DeleteFunc(r.users, func(u user) bool { return u.journal == j })
	if r.user.journal == j {
		r.user = user{}
		if n := len(r.users); n > 0 {
			r.user = r.users[n-1]
			r.users = slices.Delete(r.users, n-1, n) // which lets go of it
		}
	}
	if !r.others(nil) {
		r.entangled = false
	}
}

// value is the one with which a transaction works on an aggregate, the last one of several.
func (r *Recorder) value(j *Journal) (value *Carrier) {
	for u := range r.all() {
		if u.journal == j && u.value != nil {
			value = u.value
		}
	}
	return value
}

// others reports whether other transactions work on an aggregate.
func (r *Recorder) others(j *Journal) bool {
	for u := range r.all() {
		if u.journal != j {
			return true
		}
	}
	return false
}

// elsewhere reports whether an event is that of another transaction: one that writes it right now, or that
// works with the value on which it was raised, as this one does not.
func (r *Recorder) elsewhere(j *Journal, event *Raised) bool {
	if event.writer != nil && event.writer != j && !event.writer.over.Load() {
		return true
	}
	for u := range r.all() {
		if u.journal != j && event.on != nil && u.at == event.on.address() {
			return !r.usesValue(j, event.on)
		}
	}
	return false
}

// raisedBy reports whether an event since the beginning of a transaction was raised in it, as far as can be
// told: not where others work on the same value.
func (r *Recorder) raisedBy(j *Journal, event *Raised) bool {
	if !r.others(j) {
		return true
	}
	return !r.entangled && !r.elsewhere(j, event) && (r.usesValue(j, event.on) || r.value(j) == nil)
}

// abandon marks an event that a transaction has rolled back: one that was raised in it, and one that was
// raised before it on an aggregate that it was given.
func (r *Recorder) abandon(j *Journal, event *Raised) {
	value := r.value(j)
	if event.raisedAt < j.begun && (value == nil || j.repeats) || !r.raisedBy(j, event) {
		return
	}
	event.left, event.given, event.inPart = true, value, false
	if r.usesValue(j, event.on) {
		event.given = event.on
	}
}

// belongs reports whether an event goes with what a transaction saves. The error is a *SharedEventsError
// without the aggregate.
func (r *Recorder) belongs(j *Journal, event *Raised) (bool, *SharedEventsError) {
	return event.belongs(r.usesValue(j, event.on) || r.usesValue(j, event.given))
}

// belongs reports whether an event goes with a save: of the same value, or of another one.
func (e *Raised) belongs(same bool) (bool, *SharedEventsError) {
	switch {
	case !e.left || same:
		return true, nil
	case e.on != nil && e.on == e.given:
		return false, nil
	default:
		return false, sharedEvents(e)
	}
}

func sharedEvents(e *Raised) *SharedEventsError {
	return &SharedEventsError{Event: fmt.Sprintf("%T", e.Data)}
}

// goneBack is for an aggregate that was written after a savepoint to which the transaction has gone back: as after a
// rollback of all of it, what that has left goes with the value that was written there. j.mu is held.
func (j *Journal) goneBack(recorder *Recorder) {
	recorder.mu.Lock()
	defer recorder.mu.Unlock()
	j.settleLocked(recorder)
	written := slices.ContainsFunc(j.entries, func(e entry) bool { return e.recorder == recorder })
	var values []*Carrier
	for _, event := range recorder.events {
		if event.committed.Load() || written && event.undoneAt == 0 || !recorder.usesValue(j, event.on) || !recorder.raisedBy(j, event) {
			continue
		}
		event.left, event.given, event.inPart = true, event.on, written
		if !slices.Contains(values, event.on) {
			values = append(values, event.on)
		}
	}
	if written || j.repeats {
		return
	}
	for _, value := range values {
		own := recorder.part(value)
		if own == nil {
			continue
		}
		j.others = append(j.others, own)
		own.use(j, value) // which no other one has yet
		if j.roots == nil {
			j.roots = make(map[*Recorder]*Recorder)
		}
		j.roots[own] = j.root(recorder)
		if slices.Contains(j.loads.all(), recorder) {
			j.loads.raised(own)
		}
	}
}

// belongs reports whether an event goes with the last write of its aggregate: see Recorder.belongs. j.mu is held.
func (j *Journal) belongs(last *entry, event *Raised) (bool, *SharedEventsError) {
	belongs, err := last.recorder.belongs(j, event)
	switch {
	case !belongs || !event.left || event.undoneAt == 0 || last.value == 0 || j.wroteSince(event): // it has not gone back to a savepoint
		return belongs, err
	case j.wroteBefore(last.value, event):
		return false, nil // it is another value, and was there before
	default:
		return false, sharedEvents(event)
	}
}

// wroteBefore reports whether the transaction has written a value before an event was raised on another one. j.mu is held.
func (j *Journal) wroteBefore(value uintptr, event *Raised) bool {
	return value != event.on.address() && slices.ContainsFunc(j.entries, func(e entry) bool { return e.value == value && e.at < event.raisedAt })
}

// wroteSince reports whether the transaction has written the value that raised an event since that was undone.
// j.mu is held.
func (j *Journal) wroteSince(event *Raised) bool {
	return slices.ContainsFunc(j.entries, func(e entry) bool { return e.value == event.on.address() && e.at > event.undoneAt })
}

// sameValue reports whether an event may have been raised again by another one: not where each was raised on
// a value that was itself given to a transaction.
func (e *Raised) sameValue(again *Raised) bool {
	return e.on == again.on || !e.left || e.on != e.given || e.inPart
}

// part gives the value that raised events, and was given to the transaction that was rolled back, a recorder
// of its own with them. So what requests leave behind is kept by their own copies, and not by the one in
// the cache; and as only copies that are made from now on share that recorder, its events go with each. It returns nil
// where it does nothing. r.mu is held.
func (r *Recorder) part(value *Carrier) *Recorder {
	if value == nil || len(r.again) > 0 || value.load() != r {
		return nil
	}
	mine := func(e *Raised) bool { return e.on == value }
	unclear := func(e *Raised) bool { return mine(e) != (e.left && e.given == value) }
	if !slices.ContainsFunc(r.events, mine) || slices.ContainsFunc(r.events, unclear) {
		return nil
	}
	own := &Recorder{version: r.version, loads: r.loads, name: r.name}
	for _, event := range r.events {
		if mine(event) {
			event.left, event.given = false, nil
			event.recorder.Store(own)
			own.events = append(own.events, event)
		}
	}
	r.events = slices.DeleteFunc(r.events, mine)
	value.set(own)
	return own
}
