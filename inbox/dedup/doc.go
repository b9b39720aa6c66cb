// Package dedup processes messages exactly once where the state that they change is not in the
// database that remembers them: entities in a document store, a key-value store, another database.
// Where both are in one database, inbox.Handle is simpler and does more.
//
// A [Processor] is an inbox.Handler. No store of messages can be atomic with a foreign store of
// entities. What makes it work nevertheless is a small part of the entity itself, its [Outbox]: the
// messages that the entity has taken in and that are not finished with. It is saved together with
// the state, in one write, under optimistic concurrency.
//
//	load      the entity, its state and its outbox
//	          a message that the outbox knows goes on from where it stopped, without the handler
//	check     the memory: a message that it knows is a duplicate
//	handle    run the application's function on the state
//	save      state, outgoing messages and the mark in the outbox, if the entity is still the one that was loaded
//	dispatch  the outgoing messages; their ids are those that were saved
//	remember  the message
//	clear     the mark in the outbox, if the entity is still the one that was saved
//
// # The order
//
// Load comes before check. What load has read is held together with everything after it by the
// version: the entity cannot have changed between load and a save that succeeds. If another
// copy of the message was through before load, its mark is in the outbox, or was cleared after the
// message was remembered, so that check, being later still, finds it. The other way round, a copy
// could check, find nothing, and be slow; the other copy comes, does all its steps, clear included;
// then the slow one loads the entity as it is now, with an empty outbox and a current version, and
// its save succeeds: the message has taken effect twice.
//
// Remember comes before clear, so that at every moment after save one of the two knows the message.
// The other way round, a process that dies between the two leaves a message that is not known, and
// its next copy takes effect again.
//
// # Two kinds of memory
//
// [Store] remembers messages that were handled, for a time that must be longer than copies can be
// on their way. It is simple, needs nothing of the producer, and forgets by the calendar: a copy
// that comes later than that takes effect again.
//
// [Tokens] is the inversion: a message takes effect only where its token is there, and the token is
// removed after it did. There is nothing to remember for longer than the message is in progress, and
// no copy is too late. The producer has to create the token before it sends, and exactly once, as a
// token that came back would let a copy through. A Processor is such a producer, of its outgoing
// messages:
//
//	save      fresh tokens are drawn and saved with the outgoing messages
//	create    the tokens, in the store
//	ready     save that they were created, if the entity is still the one that was saved
//	dispatch  with these tokens
//	remember  by removing the token of the incoming message
//	sweep     remove the tokens that were drawn and abandoned on the way
//	clear
//
// A copy that finds tokens drawn by another process cannot know whether they are being created
// right now, or were, and used up by their receiver meanwhile. It draws others, and saves them in
// place of the first. Only one of the two gets its tokens saved as ready, so that a token that
// travels was created once, by who drew it, before it travelled. The others never travel. They are
// noted in the outbox and removed before clear. One that is created by a slow process even after
// that is garbage, and is purged by age (Tokens.PurgeOlderThan).
//
// The price of tokens: a lost token is a message that is never processed, where a lost entry of a
// Store is one that may be processed twice.
//
// # What is repeated
//
// A process can die, or an answer get lost, after each step. The message is delivered again, and:
//
//	after       known to     the next delivery                       what is repeated
//	load        no process   begins anew                             nothing
//	check       no process   begins anew                             nothing
//	handle      no process   runs the handler again                  what the handler did outside of its state
//	save        the outbox   goes on (with tokens: draws others)     nothing
//	redraw      the outbox   draws others                            nothing
//	create      the outbox   draws others, removes these at sweep    nothing
//	ready       the outbox   dispatches                              nothing
//	dispatch    the outbox   dispatches again                        the outgoing messages, with the same ids, bytes and tokens
//	remember    both         dispatches again                        the same
//	sweep       both         dispatches again                        the same
//	clear       the memory   is a duplicate                          nothing
//
// A delivery that meets more than Config.Conflicts conflicts gives way, and the next one repeats
// what it would after a crash at that point. A conflict between handle and save runs the handler
// again too, on the state as it is then. So the handler may change its state and return messages,
// and nothing else: a mail that it sends itself may be sent twice. Outgoing messages can arrive
// several times, as with every producer; their receivers tell them apart by id, or by token. The
// tests crash after each of these steps, and between two copies at every interleaving of them.
//
// # What it needs
//
// The versions of an entity must never come again. Where entities are deleted and made anew, a copy
// that is slower than both would take the new one for the one that it has not found: keep deleted
// entities as an empty state, or at least for longer than an attempt takes (inbox.Runner.Timeout).
// Never delete one whose outbox is not empty. Reads of entities and of the memory must see all
// writes before them: no replica that lags behind, no cache.
package dedup
