package uow

import (
	"reflect"

	"github.com/gorm-fanout/fanout/envelope"
)

// Aggregate is embedded by domain types that raise events. It adds the method Raise and nothing else: no column in the
// database, nothing in JSON. The zero value is ready to use.
//
//	type Order struct {
//		ID, Customer, Status string
//		uow.Aggregate
//	}
//
// Copies of a value that has raised something share its events: GORM copies structs, and none of the copies must lose or
// repeat an event. A copy that was made before the first Raise is on its own, which is what happens in
// "for _, o := range orders { o.Raise(...) }": range over the index instead.
//
// Like other fields, an aggregate is not safe for concurrent use.
type Aggregate struct {
	recorder *Recorder
}

// Raise records an event, a plain value whose type is registered in the catalog. Id and time of the message are fixed
// now, so that a transaction that is tried again writes the same message. The event goes to the outbox when a
// transaction that wrote this aggregate commits, whether it was raised before the aggregate was saved or after. When the
// transaction rolls back, the event stays pending and goes with the next one that succeeds.
//
// The options refine this one event; see envelope.Option.
func (a *Aggregate) Raise(event any, options ...envelope.Option) {
	if a == nil {
		panic("uow: Raise on an aggregate that embeds *uow.Aggregate, which is nil: embed uow.Aggregate by value")
	}
	a.fanoutRecorder().raise(event, options)
}

// fanoutRecorder is how RecorderOf finds the recorder; being unexported, it is no part of the embedding type's interface.
func (a *Aggregate) fanoutRecorder() *Recorder {
	if a == nil { // embedded as a pointer: it can have raised nothing
		return nil
	}
	if a.recorder == nil {
		a.recorder = new(Recorder)
	}
	return a.recorder
}

// fanoutShared is the recorder that a copy shares with the value it was made of, or nil.
func (a *Aggregate) fanoutShared() *Recorder {
	if a == nil {
		return nil
	}
	return a.recorder
}

// Root is every type that embeds Aggregate, as a pointer: the root of an aggregate.
type Root interface {
	Raise(event any, options ...envelope.Option)
	fanoutRecorder() *Recorder
	fanoutShared() *Recorder
}

var rootType = reflect.TypeFor[Root]()

// IsAggregate reports whether a struct type, or what a pointer type points to, embeds Aggregate.
func IsAggregate(t reflect.Type) bool {
	if t.Kind() != reflect.Pointer {
		t = reflect.PointerTo(t)
	}
	return t.Implements(rootType)
}

// RecorderOf returns the recorder of an aggregate, given as a struct value. A value that cannot be addressed is a copy: it
// has a recorder only when it was made after the first Raise, whether its events are pending or written. ok is false when
// there is none.
func RecorderOf(v reflect.Value) (recorder *Recorder, ok bool) {
	if !v.CanAddr() {
		if !IsAggregate(v.Type()) {
			return nil, false
		}
		addressable := reflect.New(v.Type())
		addressable.Elem().Set(v)
		a, _ := reflect.TypeAssert[Root](addressable)
		recorder = within(a, Root.fanoutShared) // a fresh one would be lost with the copy
		return recorder, recorder != nil
	}
	a, ok := reflect.TypeAssert[Root](v.Addr())
	if !ok {
		return nil, false
	}
	recorder = within(a, Root.fanoutRecorder)
	return recorder, recorder != nil
}

// within gets the recorder of an aggregate. The type may embed another aggregate as a pointer or as an interface that is
// nil, as it is in db.Model(&Parcel{}): then there is no Aggregate to ask, and it can have raised nothing.
func within(a Root, get func(Root) *Recorder) (recorder *Recorder) {
	defer func() {
		if recover() != nil { // the nil on the way: the methods themselves cannot panic
			recorder = nil
		}
	}()
	return get(a)
}

// Pending returns the events that an aggregate has raised and that no commit has written yet, oldest first. It is meant
// for tests and assertions.
func Pending(root Root) []any {
	recorder := root.fanoutRecorder()
	if recorder == nil {
		return nil
	}
	recorder.mu.Lock()
	defer recorder.mu.Unlock()
	events := make([]any, len(recorder.events))
	for i, event := range recorder.events {
		events[i] = event.Data
	}
	return events
}
