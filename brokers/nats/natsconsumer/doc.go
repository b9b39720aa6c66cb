// Package natsconsumer consumes streams of NATS JetStream, through a durable pull consumer. It is a
// module of its own.
//
//	conn, err := nats.Connect("nats://nats.internal", nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true))
//	...
//	consumer, err := natsconsumer.NewConsumer(conn, "ORDERING", "billing", handler,
//		natsconsumer.Config{
//			ConsumerConfig: inbox.ConsumerConfig{DeadLetters: inbox.Always("dead.billing")},
//			Create:         &jetstream.ConsumerConfig{FilterSubject: "ordering.order"},
//		})
//	...
//	err = consumer.Run(ctx)
//
// A [Consumer] hands each message to an [inbox.Handler], and confirms it (+ACK) when the handler is done,
// not before. It reads the internal and the external form and CloudEvents, in structured and in binary
// mode. While a message is claimed, the server is told so three times within AckWait of the durable
// consumer: so a handler may take longer than that.
//
// # Order
//
// Messages of one ordering key are handled one at a time, in the order of the stream; keys beside
// each other. A message that fails is tried again here, with the backoff of Retry; what is behind
// it waits, other keys flow. When it becomes a dead letter, or is forwarded to the dead letters,
// its key goes on. A message without an ordering key has no order, and waits for no other.
//
// JetStream itself deals the messages of a durable consumer out among the processes that ask, and
// redelivers each by itself, AckWait after it was delivered, while it delivers newer ones. Where
// the order of keys matters, let one process at a time consume a durable, and say so (Exclusive):
// then it holds across stops and crashes, outages, and deliveries that are lost on their way.
// Spread the load over several durables whose filters share out the subjects (the server can map
// keys to partitions of subjects). Where several processes share one, keys have their order within
// each, and the handler has to cope with the rest, by the sequence of the aggregate for one.
//
// # At least once
//
// What was not confirmed comes again: AckWait after a crash, after a lost confirmation, or when a
// process could not reach the server, or was frozen, for that long. Then the contexts of its
// handlers end, and whatever they return, nothing of theirs is confirmed or given back; an
// exclusive one continues, as no other process gets its messages. A copy of a message that is
// claimed shares its fate. Other copies are for the handler to tell, as inbox.Handle does. A stream
// that is deleted and made anew counts from 1 again: what was claimed of the old one is handled and
// not confirmed, as that would confirm the new one's message. Leave MaxDeliver of the durable at
// -1: where it is set, the server drops a message that was delivered as often, whoever was at
// fault; a warning says so.
//
// # What is claimed
//
// Up to MaxOutstandingMessages and MaxOutstandingBytes are claimed. Followers of one key can fill
// that room while their head waits for its next attempt. Where workers are idle and nothing new
// fits, every second a quarter of what waits is given back for five seconds, the last of the
// longest key first, so that other keys get in. What is newer of the key waits here until they have
// come again. With Exclusive nothing is given back, since an outage could keep it away for longer
// than it is waited for: other keys wait until the head is done with or abandoned. MaxAckPending
// bounds it all. What is asked for at once keeps to MaxRequestBatch and MaxRequestExpires of the
// durable.
//
// # Dead letters
//
// A message that is abandoned (see [inbox.Retry] and [inbox.Permanent]) or cannot be read
//
//   - is published to the subject of DeadLetters, as it was, with the headers of
//     inbox.FieldDeadLetter..., and confirmed when a stream has stored it. A repetition after a
//     crash is dropped within the deduplication window of that stream. Headers that begin with
//     Nats- are left out; the added ones, too, where they do not fit. A subject that no stream
//     takes blocks the message and its key, loudly, until one does.
//   - is held, without such a subject: nothing is lost. It is tried again after the longest pause
//     of Retry, for as long as it takes; an error is logged once a minute, Held of the stats shows
//     it. The key of one that is abandoned waits behind it.
//
// The Decoder is asked first about a message that cannot be read. The message is skipped where a
// flat field says a type that the handler skips, or where Unreadable says so. Without a subject for
// dead letters, inbox.Handlers keep it in their table; only with neither it is held, and its key
// does not wait for it.
//
// Failures are counted in this process; [inbox.Message.Deliveries] is the server's count. A message whose
// handler kills the process is tried again by the next one; inbox.Handle does not see it, since its
// transaction was rolled back. Let the handler return inbox.Permanent where Deliveries is too high.
//
// # Stopping and errors
//
// When the context of [Consumer.Run] ends, the fetch in progress is waited for, a second at most;
// then running handlers have the time of ShutdownTimeout and are confirmed, and all else is given
// back. No attempt is charged. A server that does not answer is waited for, up to ten seconds in
// all.
//
// Outages are waited for, with one line in the log at their beginning and one at their end. The durable
// consumer is looked at every five seconds, and may be changed or paused while it is consumed. These end Run,
// with advice:
//
//	stream not found, consumer not found   at the start: create it, or let Create do so
//	not a pull consumer, AckPolicy         at the start: it has to be one with explicit acks
//	JetStream not enabled                  at the start: for the server or the account
//	the connection is closed               it has used up its reconnects, or was closed too early
package natsconsumer
