// Package kafkaconsumer consumes topics of Kafka, and of what speaks its protocol, as a member of a
// consumer group, on franz-go. It is a module of its own.
//
//	consumer, err := kafkaconsumer.NewConsumer([]string{"kafka.internal:9092"}, "billing", []string{"ordering.order"}, handler,
//		kafkaconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{
//			DeadLetters: func(topic string) string { return topic + ".dead.billing" },
//		}})
//	...
//	err = consumer.Run(ctx)
//
// A [Consumer] hands each message to an [inbox.Handler]. Its offset is committed when the handler, and
// those of all messages before it in its partition, are done, not before: once a second, when a partition
// is given to another member, and at a stop. It reads the internal and the external form and CloudEvents,
// in structured mode and in the binary mode of their Kafka binding. Topics are the application's to create.
//
// # Order
//
// Messages of one ordering key are handled one at a time, in the order of their partition, also
// when one of them fails; keys, also those of one partition, beside each other. The ordering key is
// the key of the record; without one it is the header ordering_key, or the partitionkey of a
// CloudEvent. A message that fails is tried again here, with the backoff of
// Retry; what is behind it waits, other keys flow. When it becomes a dead letter, or is forwarded
// to the dead letters, its key goes on. A message without a key has no order, and waits for no
// other.
//
// Partitions move between members one by one (cooperative-sticky). Before one moves, the handlers
// that run with its messages are waited for, as long as ShutdownTimeout and half of
// kgo.RebalanceTimeout (1 min by default) at most, and what is done is committed: so no key is two
// members' at a time, and keys keep their order across members that come and go. A member that the
// group has given up on, as one that was frozen or cut off (the client's session timeout, 45 s by
// default), has lost its partitions without a word: the contexts of its handlers end as soon as it
// finds out, and it commits nothing more. Until then two may be at one message; inbox.Handle lets
// one of them win.
//
// # At least once
//
// What was not committed comes again after a crash, a cut, a restart and a rebalance: also messages
// that were done, where one before them in their partition was not. Copies are for the handler to
// tell, as inbox.Handle does.
//
// # What is claimed, and what is not committed
//
// A partition of which MaxOutstandingMessages or MaxOutstandingBytes are claimed is not read on
// until half of them are done. Followers of one failing key can fill it; then other keys of that
// partition wait until its head is done with or abandoned, and other partitions go on.
//
// A message that fails for long, or is held, pins the offset of its partition. Other keys pass it,
// and of what is done behind it offsets alone stay in memory, a range of them at a time. All of
// that comes again after a restart, so it is bounded, too: behind MaxUncommittedMessages the
// partition is not read on until that message is done, or a dead letter, and a warning has its
// offset, id and age. Do not leave an offset pinned for longer than the topic keeps its messages,
// as a restart then finds neither the message nor what was behind it, nor for longer than the inbox
// remembers (inbox.PurgeConfig), as copies then take effect again.
//
// [Consumer.Partitions] has these figures of each partition, [Consumer.Lag] those of a topic for
// the metrics of telemetry/otelinbox.
//
// # Dead letters
//
// A message that is abandoned (see [inbox.Retry] and [inbox.Permanent]) or cannot be read
//
//   - is written to the topic of DeadLetters, as it was, with its key and the headers of
//     inbox.FieldDeadLetter..., and counts as done. A crash between the two repeats the dead
//     letter. It is compressed by zstd, so that it is as small as its message could be; Client can say
//     otherwise. Where the topic finds it too large with them, the added headers are left out, and
//     where it still does, the payload and the headers of the message: then it says the size, the digest
//     and the position of the message (inbox.FieldDeadLetterBytes), where the first topic has it until
//     retention removes it, and an error is logged. So give the topic of dead letters the
//     max.message.bytes of the first one. A topic that is missing or refuses blocks the message and
//     its key, loudly, until it takes it.
//   - is held, without such a topic: nothing is lost. It is tried again after the longest pause of
//     Retry, for as long as it takes; an error is logged once a minute, Held of the stats shows it.
//     The key of one that is abandoned waits behind it, and the offset of its partition stays where
//     it is.
//
// The Decoder is asked first about a message that cannot be read. The message is skipped where a
// flat field says a type that the handler skips, or where Unreadable says so. Without a topic for
// dead letters, inbox.Handlers keep it in their table; only with neither it is held, and its key
// does not wait for it.
//
// Failures are counted in this process, and Kafka counts no deliveries: a message whose handler kills the
// process is tried again by the next one, forever. inbox.Handle does not see it either: its
// transaction was rolled back. Move the group's offset beyond it (kafka-consumer-groups
// --reset-offsets).
//
// # Stopping and errors
//
// When the context of [Consumer.Run] ends, nothing new is handled; running handlers have the time
// of ShutdownTimeout; then what is done is committed, and the group is left. No attempt is charged.
//
// Outages are waited for, with one line in the log at their beginning and one at their end; the cluster is
// asked every five seconds whether it is there. These end Run at its start, with advice; later they are
// waited out:
//
//	UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION     the topic does not exist
//	TOPIC_ and GROUP_AUTHORIZATION_FAILED                   the user may not read it, or not in this group
//	SASL_AUTHENTICATION_FAILED, UNSUPPORTED_SASL_MECHANISM  the login is wrong
//	INVALID_GROUP_ID                                        the group cannot have that name
//
// A topic that is deleted and made anew is another one of the same name. The consumer finds that out within
// seconds, says so in its log, and reads the new one from its beginning; other topics go on. What is under
// way of the old one ends, and no offset of it is committed to the new one. Kafka deletes a group's offsets
// with their topic; it tells topics apart from 2.8 on. Before that, stop the consumers, and delete the offsets.
//
// Messages that retention deletes before they were read are lost to the group, without a word from Kafka;
// what an unclean election of a leader has lost is reported as an error.
package kafkaconsumer
