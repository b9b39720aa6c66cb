package journal

import (
	"context"
	"reflect"
	"slices"
	"sync"
)

// An Attempt is one run of the function of a uow.Do that may be repeated. It remembers what the run
// raised, so that the next one starts from where the first did, and raises the same messages: same
// ids, same times. It is safe for concurrent use. The nil attempt remembers nothing.
type Attempt struct {
	first, start uint64 // when the first attempt and this one began, on the clock of the package

	mu        sync.Mutex
	recorders map[*Recorder]struct{}
	published []*Raised
	again     []*Raised // what attempts before published, and no later one yet
	after     []func()  // see AtEnd
}

type attemptKey struct{}

// AttemptOf returns the attempt that a transaction begun with ctx belongs to, or nil.
func AttemptOf(ctx context.Context) *Attempt {
	attempt, _ := ctx.Value(attemptKey{}).(*Attempt)
	return attempt
}

// FirstAttempt begins the first attempt of a unit of work.
func FirstAttempt() *Attempt {
	now := clock.Add(1)
	return &Attempt{first: now, start: now, recorders: make(map[*Recorder]struct{})}
}

// Context is ctx for the transaction of the attempt: see [AttemptOf].
func (a *Attempt) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, attemptKey{}, a)
}

// Next takes back what the attempt raised and returns the attempt that repeats it.
func (a *Attempt) Next() *Attempt {
	a.mu.Lock()
	defer a.mu.Unlock()
	for recorder := range a.recorders {
		recorder.rewind(a.start)
	}
	// A message that another transaction wrote, one begun with the context of the attempt, is there
	// to stay.
	lost := slices.DeleteFunc(a.published, func(event *Raised) bool { return event.committed.Load() })
	return &Attempt{first: a.first, start: clock.Add(1), recorders: a.recorders, again: append(lost, a.again...), after: a.after}
}

// End lets go of identities that no later attempt will ask for.
func (a *Attempt) End() {
	a.mu.Lock()
	after := a.after
	a.after = nil
	for recorder := range a.recorders {
		recorder.forget()
	}
	a.mu.Unlock()
	for _, f := range after {
		f()
	}
}

// AtEnd runs f when there will be no further attempt: at once for the nil attempt.
func (a *Attempt) AtEnd(f func()) {
	if a == nil {
		f()
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.after = append(a.after, f)
}

// Touch notes an aggregate before a statement works on it: should the attempt fail, what it raised
// is taken back.
func (a *Attempt) Touch(recorder *Recorder) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.recorders[recorder]; known {
		return
	}
	a.recorders[recorder] = struct{}{}
	if a.first < a.start {
		recorder.supersede(a.first, a.start)
	}
}

// Publish notes an event without an aggregate. In a repeated attempt it gets the identity that it
// had in the one before.
func (a *Attempt) Publish(event *Raised) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.again = event.takeIdentity(a.again)
	a.published = append(a.published, event)
}

// takeIdentity makes an event that is raised again the same message as before, the first of its
// type in again, and returns the rest.
func (r *Raised) takeIdentity(again []*Raised) []*Raised {
	for i, before := range again {
		if reflect.TypeOf(before.Data) == reflect.TypeOf(r.Data) {
			r.takeOver(before)
			return slices.Delete(again, i, i+1)
		}
	}
	return again
}

// rewind takes out the events raised since start, to be raised again. What an attempt before
// raised, and this one did not get to, is still to come.
func (r *Recorder) rewind(start uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rest := r.again
	r.again = nil
	r.events = slices.DeleteFunc(r.events, func(event *Raised) bool {
		if event.raisedAt <= start {
			return false
		}
		r.again = append(r.again, event)
		return true
	})
	r.again = append(r.again, rest...)
}

func (r *Recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.again = nil
}

// supersede is for an aggregate that failed attempts raised something on before the transaction met
// it, so that it could not be rewound. What they raised, between first and start, is taken back
// now; what this attempt has raised since gets the identities of that, and what it is still to
// raise finds the rest.
func (r *Recorder) supersede(first, start uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var old []*Raised
	r.events = slices.DeleteFunc(r.events, func(event *Raised) bool {
		failed := first < event.raisedAt && event.raisedAt < start
		if failed {
			old = append(old, event)
		}
		return failed
	})
	for _, event := range r.events {
		if event.raisedAt > start {
			old = event.takeIdentity(old)
		}
	}
	r.again = append(r.again, old...)
}
