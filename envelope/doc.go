// Package envelope says what an event and a message are.
//
// An event is a plain Go value that the domain raises. A [Catalog] names the
// event types of one bounded context; [Catalog.Seal] turns an event, its source
// and the context of the request into a [Message]; a message has three forms on
// the wire:
//
//   - the internal form ([Message.MarshalInternal]), everything we know, for the
//     application's own broker;
//   - the external form ([Message.MarshalExternal]), for partners, built from a
//     list of what may leave;
//   - CloudEvents 1.0 structured JSON ([Message.MarshalCloudEvent]), for
//     partners that prefer the standard.
//
// Consumers read all three with [Decode], and the payload with [DataAs] or
// [Catalog.Unmarshal].
//
// Options here have no With in front, unlike those of other packages: they describe
// an event, as in Register[OrderPlaced](events, Published(), Version(2)).
//
// The package knows neither GORM nor any broker, and does no I/O. Every error
// reads "envelope: what was attempted: cause: remedy".
package envelope
