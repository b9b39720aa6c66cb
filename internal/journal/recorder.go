package journal

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/gorm-fanout/fanout/envelope"
)

// A Carrier is the part of a struct that leads to its recorder. Package uow has the only struct
// that consists of one, uow.Aggregate; by that it is known.
type Carrier struct {
	recorder *Recorder // the first field: see RecorderOf; by load, set and swap alone
}

// Recorder is the carrier's own, made now where it has none.
func (c *Carrier) Recorder() *Recorder {
	for {
		if r := c.load(); r != nil {
			return r
		}
		c.swap(nil, new(Recorder))
	}
}

// The field is no atomic.Pointer, which must not be copied, as aggregates are.
func (c *Carrier) place() *unsafe.Pointer {
	return (*unsafe.Pointer)(unsafe.Pointer(&c.recorder)) //nolint:gosec // a pointer to a pointer
}

func (c *Carrier) load() *Recorder { return (*Recorder)(atomic.LoadPointer(c.place())) }

func (c *Carrier) set(r *Recorder) {
	atomic.StorePointer(c.place(), unsafe.Pointer(r)) //nolint:gosec // of the field's type
}

func (c *Carrier) swap(from, to *Recorder) (swapped bool) {
	return atomic.CompareAndSwapPointer(c.place(), unsafe.Pointer(from), unsafe.Pointer(to)) //nolint:gosec // of the field's type
}

// address compares a value with one that is not kept.
func (c *Carrier) address() uintptr {
	return uintptr(unsafe.Pointer(c)) //nolint:gosec // it is never made a pointer again
}

// A Recorder keeps the events that one aggregate has raised and no commit has written yet. All
// copies of the aggregate share it. It is safe for concurrent use.
type Recorder struct {
	mu     sync.Mutex
	events []*Raised
	again  []*Raised // of an attempt that is being repeated: see attempt.go
	loads  *loads    // the transaction that loaded the aggregate and is to hear of its first event
	name   string    // of the aggregate's type, for loads

	user      user   // the first transaction that works on the aggregate: see shared.go
	users     []user // further ones
	entangled bool   // several have worked on one value at once

	version int64 // of the aggregate: that of its row when it was loaded, or was written last; 0 = not known

	raising atomic.Int32 // calls of Raise in progress
}

// Raised is an event with its place in the order of all events of the process.
type Raised struct {
	envelope.Event

	recorder    atomic.Pointer[Recorder] // nil for an event without an aggregate
	on          *Carrier                 // the value that raised it; nil where that is not known
	given       *Carrier                 // the one that a transaction was given that was rolled back
	left        bool                     // by such a transaction: see shared.go
	inPart      bool                     // by a part of one that has written the aggregate outside of it, too
	writer      *Journal                 // of the transaction that writes it, until it ends; guarded by recorder.mu
	raisedAt    uint64
	firstUndone uint64 // when the work was rolled back that it was raised in, or a part of it: see undone.go
	undoneAt    uint64 // when that happened last; 0 = it did not
	replaces    bool   // it was raised again in place of an event of such work
	replaced    int    // how many such events
	correlation string // that it was written with where its context had none; see Correlate
	unconfirmed atomic.Bool
	committed   atomic.Bool // its row is there, and the recorder need not keep it any longer
}

// Unconfirmed reports whether the event was written in a transaction whose outcome we could not
// see.
func (r *Raised) Unconfirmed() bool { return r.unconfirmed.Load() }

// SetUnconfirmed says that the event was written in a transaction that belongs to the caller, or in
// one whose commit got no answer. It stays pending: should that have been rolled back, nothing is
// lost, and should it have been committed, the next write of the same event finds its row there.
func (r *Raised) SetUnconfirmed() { r.unconfirmed.Store(true) }

// Confirm says that the event is written durably: it is taken from its aggregate.
func (r *Raised) Confirm() {
	r.committed.Store(true)
	for recorder := r.recorder.Load(); recorder != nil; {
		recorder.sweep()
		now := r.recorder.Load() // a rollback may have given the value one of its own
		if now == recorder {
			return
		}
		recorder = now
	}
}

// Confirmed reports whether the event is known to be written durably.
func (r *Raised) Confirmed() bool { return r.committed.Load() }

// clock orders what happens in units of work: events raised, aggregates tracked, savepoints set and
// rolled back.
var clock atomic.Uint64 //nolint:gochecknoglobals // an order within the process needs one counter

// NewRaised is an event without an aggregate.
func NewRaised(data any, options []envelope.Option) *Raised {
	return &Raised{Event: envelope.NewEvent(data, options...), raisedAt: clock.Add(1)}
}

// mostRaising bounds events that raise events while they are encoded, which without end would
// exhaust the stack.
const mostRaising = 100

// Raise records an event: see uow.Aggregate.
func (c *Carrier) Raise(data any, options []envelope.Option) {
	r := c.Recorder()
	defer r.raising.Add(-1)
	if r.raising.Add(1) > mostRaising {
		panic("uow: Raise is called by the MarshalJSON of an event that its MarshalJSON raises, and so on without end: raise events where they happen")
	}
	event := &Raised{Event: envelope.NewEvent(data, options...), on: c} // may raise others, so without the lock
	r.mu.Lock()
	for c.load() != r { // a rollback has given the value one of its own
		r.mu.Unlock()
		r = c.Recorder()
		r.mu.Lock()
	}
	event.recorder.Store(r)
	defer func() { r.mu.Unlock() }()
	event.raisedAt = clock.Add(1)
	if r.loads != nil {
		r.loads.raised(r)
		r.loads = nil // once is enough
	}
	r.again = event.takeIdentity(r.again)
	r.events = append(r.events, event)
}

// HasVersion notes the version of the row that the aggregate was loaded from.
func (r *Recorder) HasVersion(version int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version = version
}

// WroteVersion notes the version that a transaction has written. A copy may have written a higher one.
func (r *Recorder) WroteVersion(version int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version = max(r.version, version)
}

// KnowsVersion reports whether the version of the row is known.
func (r *Recorder) KnowsVersion() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.version > 0
}

// Ascending is a version that a statement has written, or 0 where the aggregate had it before: then no event
// of it could be told from those before by its sequence.
func (r *Recorder) Ascending(version int64) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ascending(version)
}

func (r *Recorder) ascending(version int64) int64 {
	if version <= r.version {
		return 0
	}
	return version
}

// Len is the number of pending events.
func (r *Recorder) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.events)
}

// Events returns the pending events, oldest first.
func (r *Recorder) Events() []*Raised {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// EventsOf returns the pending events that go with a save of one of the values that share them, which is
// nil where it is not known. The error is a *SharedEventsError.
func (r *Recorder) EventsOf(value *Carrier, source *envelope.Source) ([]*Raised, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := make([]*Raised, 0, len(r.events))
	for _, event := range r.events {
		belongs, err := event.belongs(value != nil && (value == event.on || value == event.given))
		if err != nil {
			err.Aggregate, err.ID = source.Aggregate, source.ID
			return nil, err
		}
		if belongs {
			events = append(events, event)
		}
	}
	return events, nil
}

// Confirm takes out the events that were written in a transaction of the caller's own which, as the
// caller says, has committed.
func (r *Recorder) Confirm() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, event := range r.events {
		if event.Unconfirmed() {
			event.committed.Store(true)
		}
	}
	r.sweepLocked()
}

// Discard drops the pending events.
func (r *Recorder) Discard() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events, r.again = nil, nil
}

// sweep takes out the events that were committed; those raised meanwhile stay.
func (r *Recorder) sweep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweepLocked()
}

func (r *Recorder) sweepLocked() {
	r.events = slices.DeleteFunc(r.events, (*Raised).Confirmed)
}
