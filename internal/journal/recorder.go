package journal

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gorm-fanout/fanout/envelope"
)

// A Carrier is the part of a struct that leads to its recorder. Package uow has the only struct
// that consists of one, uow.Aggregate; by that it is known.
type Carrier struct {
	recorder *Recorder // the first field: see RecorderOf
}

// Recorder is the carrier's own, made now where it has none.
func (c *Carrier) Recorder() *Recorder {
	if c.recorder == nil {
		c.recorder = new(Recorder)
	}
	return c.recorder
}

// A Recorder keeps the events that one aggregate has raised and no commit has written yet. All
// copies of the aggregate share it. It is safe for concurrent use.
type Recorder struct {
	mu     sync.Mutex
	events []*Raised
	again  []*Raised // of an attempt that is being repeated: see attempt.go
	loads  *loads    // the transaction that loaded the aggregate and is to hear of its first event
	name   string    // of the aggregate's type, for loads

	raising atomic.Int32 // calls of Raise under way
}

// Raised is an event with its place in the order of all events of the process.
type Raised struct {
	envelope.Event

	recorder    *Recorder // nil for an event without an aggregate
	raisedAt    uint64
	firstUndone uint64 // when the work was rolled back that it was raised in, or a part of it: see undone.go
	undoneAt    uint64 // when that happened last; 0 = it did not
	replaces    bool   // it was raised again in place of an event of such work
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

// Confirm says that the event is written for good: it is taken from its aggregate.
func (r *Raised) Confirm() {
	r.committed.Store(true)
	if r.recorder != nil {
		r.recorder.sweep()
	}
}

// Confirmed reports whether the event is known to be written for good.
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
func (r *Recorder) Raise(data any, options []envelope.Option) {
	defer r.raising.Add(-1)
	if r.raising.Add(1) > mostRaising {
		panic("uow: Raise is called by the MarshalJSON of an event that its MarshalJSON raises, and so on without end: raise events where they happen")
	}
	event := &Raised{Event: envelope.NewEvent(data, options...), recorder: r} // may raise others, so without the lock
	r.mu.Lock()
	defer r.mu.Unlock()
	event.raisedAt = clock.Add(1)
	if r.loads != nil {
		r.loads.raised(r)
		r.loads = nil // once is enough
	}
	r.again = event.takeIdentity(r.again)
	r.events = append(r.events, event)
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
