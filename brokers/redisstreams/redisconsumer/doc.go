// Package redisconsumer consumes what brokers/redisstreams publishes: it is one member of a
// consumer group of Redis Streams.
//
//	consumer, err := redisconsumer.NewConsumer(client, "billing", []string{"ordering::order"}, handler, redisconsumer.Config{})
//	...
//	err = consumer.Run(ctx)
//
// Messages are delivered at least once. An entry is acknowledged after its handler has returned
// without an error, never before; what makes of that processing exactly once is the handler, such
// as inbox.Handle.
//
// # Order
//
// Within one consumer, messages of one ordering key are handled one after the other, in the order
// of their stream, also when one of them fails: its key waits for it, and only its key. A message
// that becomes a dead letter, or is forwarded to the dead letters, lets its key go on.
//
// Redis itself knows no order among the members of a group: it gives each entry to whoever asks
// next. Where the order of keys matters, let one member at a time read a stream, and spread the
// load over several streams. Where several read one, the handler has to cope with that, by the
// sequence of the aggregate for one. And what a dead consumer had claimed comes after what others
// have read meanwhile. A message that three processes had claimed when they died (see Crash
// isolation) is out of the queue of its key: later ones do not wait for it.
//
// # Backfill
//
// Producers may put messages of low priority into a stream of their own, "<stream>:backfill". A
// consumer of the stream reads it, too, as soon as it exists, but only while the stream has nothing
// new, and starts its messages only when no other is ready; those that are being handled are
// finished. It takes no more of it than twice the number of workers. A stream that never runs dry
// so leaves its backfill waiting. Each of the two keeps the order of its keys, and of a key that is
// in both one message is handled at a time; between the two there is no order: later messages of
// the stream overtake the key's backfill. The two are one source, and have their dead letters
// together. WithoutBackfill leaves it alone.
//
// # What is claimed
//
// A consumer claims up to MaxOutstandingMessages entries of each stream, and MaxOutstandingBytes.
// Followers of failing messages that would fill that room are unloaded: their payloads are dropped,
// so that one key starves no other. The consumer renews its claims while it lives, so a handler may
// use all of its timeout. When it stops it releases them. After a crash other consumers take them
// over after ClaimAfter; they do so, too, when the consumer is cut off or frozen for that long.
// Then the contexts of its handlers end, and it neither acknowledges nor abandons entries that are
// no longer its own. Every change of an entry is a script that first checks the claim: the member's
// name and the number of the delivery.
//
// # Dead letters and crash isolation
//
// A message whose handler fails is tried again, after a pause, up to the attempts of Retry; then
// inbox.Handle makes a dead letter of it in its table. After other handlers it goes to the dead
// letters here, a stream of their own, as does one that cannot be read, unless the Decoder makes an
// event of it, its type is skipped by the handler, or Unreadable says skip. [ResendDeadLetters]
// sends them again, to all groups of their stream.
//
// A message whose handler kills the process cannot be counted there. What three processes had
// claimed when they died is therefore handled alone: everything else is given back, so that other
// members may have it, and is claimed again afterwards. If it kills again, it alone is charged, and ends among the dead
// letters when it has been handed out as often as it may be tried (at least four times). Nothing
// that merely was near it does.
//
// # Errors of the server
//
// Outages are waited out, with lines in the log at their beginning, when another cause replaces the
// first, and at their end. A stream or group that was deleted (DEL, FLUSHALL, XGROUP DESTROY) is
// created again, loudly; it starts where it started at first, and duplicates are for the handler to
// recognise. What is pending but was trimmed from its stream is reported, counted, and let go.
//
//	the server says                                at the start   later
//	NOAUTH, WRONGPASS, ERR AUTH, ERR DB index      ends Run       waited out
//	NOPERM, ERR The user executing the script      ends Run       waited out
//	WRONGTYPE, CROSSSLOT, ERR unknown command      ends Run       waited out
//	NOGROUP, UNBLOCKED                             -              the group is created again
//	anything else, or nothing at all               waited out     waited out
//
// Redis 6.2 or later, or what speaks its protocol and runs scripts. An ACL user needs XREADGROUP,
// XGROUP, XACK, XCLAIM, XPENDING, XRANGE, XINFO, EXISTS, TIME, EVALSHA and EVAL on the streams and
// their backfills, and XADD on the streams of the dead letters. Never let the server evict streams
// (maxmemory-policy noeviction): what it evicts is gone.
package redisconsumer
