// Package rabbitmqconsumer consumes queues of RabbitMQ, 3.10 or later, over AMQP 0-9-1. It is a
// module of its own.
//
//	consumer, err := rabbitmqconsumer.NewConsumer("amqp://user:password@rabbit.internal/orders", "billing", handler,
//		rabbitmqconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{DeadLetters: inbox.Always("billing-dead")}})
//	...
//	err = consumer.Run(ctx)
//
// A [Consumer] hands each message of one queue to an [inbox.Handler], and confirms it (basic.ack) when
// the handler is done, not before. It reads the internal and the external form and CloudEvents, in
// structured mode and in the binary mode of their AMQP binding. The queue, its binding, and that of
// the dead letters are the application's to declare.
//
// # Order
//
// Messages of one ordering key are handled one at a time, in the order in which the queue has them;
// keys beside each other. A message that fails is tried again here, with the backoff of Retry; what
// is behind it waits, other keys flow. When it becomes a dead letter, or is forwarded to the dead
// letters, its key goes on. A message without an ordering key has no order, and waits for no other.
//
// RabbitMQ itself deals the messages of a queue out among its consumers. Where the order of keys
// matters, let one consumer at a time have the queue, with the argument x-single-active-consumer of the
// queue: the others take over when it ends. Spread the load over several queues with an exchange of type
// x-consistent-hash, whose argument hash-header is ordering_key; see brokers/rabbitmq. With
// x-single-active-consumer a key keeps its order across consumers that come, go and are cut off, since
// what was not confirmed goes back to its place in the queue. Without it, keys have their order within
// each consumer, and the handler has to cope with the rest, by the sequence of the aggregate for one.
//
// # At least once
//
// What was not confirmed comes again: after a crash, and when a connection or channel is lost. Then the
// contexts of the handlers that are in progress end, since others may get their messages; whatever they
// return, it is not confirmed. Copies are for the handler to tell, as inbox.Handle does. A message must
// be confirmed within the server's consumer_timeout (30 minutes by default), with all its attempts and
// those of the messages in front of it in its key; else the server closes the channel, and all that was
// claimed comes again.
//
// # What is claimed
//
// Up to MaxOutstandingMessages messages are claimed. Followers of one failing key can fill that
// room; then other keys of the queue wait until its head is done with or abandoned. RabbitMQ would
// deliver a message that is given back at once again, so nothing is won by that. Choose a number
// that is well above the messages that one key can have at a time.
//
// # Dead letters
//
// A message that is abandoned (see [inbox.Retry] and [inbox.Permanent]) or cannot be read
//
//   - is published to DeadLetterExchange, with the routing key of DeadLetters, as it was, with the
//     headers of inbox.FieldDeadLetter..., and confirmed when the server has taken it. A crash
//     between the two repeats the dead letter. It has lost its expiration, its user id, and the
//     headers CC and BCC; where the added headers do not fit a frame, they are left out. Where no
//     queue is bound, or the server refuses it, it blocks its key, loudly, until the server takes
//     it.
//   - is rejected with QueueDeadLetters: the queue's own dead letter exchange gets it.
//   - is held, with neither: nothing is lost. It is tried again after the longest pause of Retry,
//     for as long as it takes; an error is logged once a minute, Held of the stats shows it. The
//     key of one that is abandoned waits behind it.
//
// The Decoder is asked first about a message that cannot be read. The message is skipped where a
// flat field says a type that the handler skips, or where Unreadable says so. Without a place for
// dead letters, inbox.Handlers keep it in their table; only with neither it is held, and its key
// does not wait for it.
//
// Failures are counted in this process. Quorum queues count deliveries ([inbox.Message.Deliveries]), and
// put a message away that has come too often (x-delivery-limit, 20 by default from RabbitMQ 4.0 on): so
// processes that die of a message do not do so forever. Stops of consumers may count, too, also for
// messages that only waited: give such a queue a dead letter exchange, and a limit well above the number
// of times that consumers are restarted while messages wait.
//
// # Stopping and errors
//
// When the context of [Consumer.Run] ends, nothing new is handled; running handlers have the time
// of ShutdownTimeout and are confirmed; all else goes back to its place in the queue. No attempt is
// charged.
//
// Outages are waited for, with one line in the log at their beginning and one at their end, and pauses
// of up to 5 s. These end Run, with advice, where they come before anything was consumed; later they are
// waited out:
//
//	NOT_FOUND, no queue    the queue does not exist
//	ACCESS_REFUSED         the user may not read from it
//	NOT_ALLOWED            the virtual host does not exist, or the user may not enter it
//
// A wrong password is waited out, and named: RabbitMQ ends the connection then without a word, as a
// network may that is out. A queue that was deleted is waited for.
package rabbitmqconsumer
