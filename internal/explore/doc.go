// Package explore is a model of the delivery protocol: what the statements of a store do to the
// table, what workers remember, and what consumers have seen. It has no clock, no database and no
// randomness: "the lease runs out" and "the backoff is over" are actions like any other.
//
// There is one transition function, [Protocol.Step]. Two things drive it:
//
//   - The tests of this package visit every state that small worlds can reach, in every order of actions and with faults
//     at every point, and test the invariants of [Protocol.Check] on each transition.
//   - The conformance suite of the stores (package storetest) takes random schedules through it and through a real
//     database, and compares the two after each action.
//
// So what has been shown of the model holds for a store as far as the store does what the model
// says, and the second test is about just that. The protocol in words, and what the exploration
// found: docs/protocol.md.
//
// The model knows one broker and one shard per class of priority, the shards that hold the same
// keys. Other brokers and other shards take no part: every statement names its broker and its
// shard.
package explore
