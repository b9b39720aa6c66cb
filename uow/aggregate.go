package uow

import (
	"reflect"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/journal"
)

// Aggregate is embedded by domain types that raise events. It adds the method Raise and nothing
// else: no column in the database, nothing in JSON. The zero value is ready to use.
//
//	type Order struct {
//		ID, Customer, Status string
//		uow.Aggregate
//	}
//
// It may also be embedded in a base type, embedded as a pointer, be in a field that GORM embeds
// (gorm:"embedded"), or in a field of its own, unexported or tagged gorm:"-". The type may have a
// Raise of its own that calls this one. But it must have one Aggregate: statements on a type with
// two are refused with an *[AggregateError].
//
// Copies of a value that has raised something share its events: GORM copies structs, and none of
// the copies must lose or repeat an event. A copy that was made before the first Raise is on its
// own, which is what happens in "for _, o := range orders { o.Raise(...) }": range over the index
// instead. Give a copy that leaves a cache events of its own: o.Aggregate = uow.Aggregate{}.
//
// Like other fields, an aggregate is not safe for concurrent use.
type Aggregate struct {
	events journal.Carrier // the only field: by this it is known
}

// Raise records an event, a plain value whose type is registered in the catalog. It is encoded now,
// and what its slices, maps and pointers become later is not sent; so a key that the database
// generates must be there before. Id and time of the message are fixed, too, so that a transaction
// that is tried again writes the same message. The event goes to the outbox when a transaction that
// wrote this aggregate commits, whether it was raised before the aggregate was saved or after. When
// the transaction rolls back, the event stays pending and goes with the next one that saves this value.
//
// An event that cannot be encoded, or whose type is not registered, makes that transaction fail.
// Until the commit it costs the memory of its JSON besides that of the value. An event may raise
// others in its MarshalJSON, on this aggregate as on any other; they come before it.
//
// The options refine this one event; see envelope.Option.
func (a *Aggregate) Raise(event any, opts ...envelope.Option) {
	if a == nil {
		panic("uow: Raise on an aggregate that embeds *uow.Aggregate, which is nil: embed uow.Aggregate by value")
	}
	a.events.Raise(event, opts)
}

// AggregateError says that a struct type holds an [Aggregate] whose events would be lost: a second
// one, or one in a place for which GORM writes no row. Its Fields lead there.
type AggregateError = journal.AggregateError

// SharedEventsError is the answer to a commit where an aggregate has events that were rolled back and may be
// those of a copy of it, such as another request's from a cache. The text says what to write.
type SharedEventsError = journal.SharedEventsError

// Pending returns the events that an aggregate has raised and that no commit has written yet,
// oldest first; nil for what is no aggregate. The aggregate is given as a pointer. The events are
// the values that were given to Raise: what has changed inside one since is seen here and not sent.
// It is meant for tests and assertions.
func Pending(aggregate any) []any {
	recorder, ok := journal.RecorderOf(reflect.ValueOf(aggregate))
	if !ok {
		return nil
	}
	raised := recorder.Events()
	events := make([]any, len(raised))
	for i, event := range raised {
		events[i] = event.Data
	}
	return events
}

// Discard drops the pending events of aggregates, given as pointers: those of an attempt that is
// not to be repeated, say. What a commit has written stays written; what is no aggregate is passed
// over.
func Discard(aggregates ...any) {
	for _, aggregate := range aggregates {
		if recorder, ok := journal.RecorderOf(reflect.ValueOf(aggregate)); ok {
			recorder.Discard()
		}
	}
}
