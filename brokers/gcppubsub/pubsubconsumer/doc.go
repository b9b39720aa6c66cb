// Package pubsubconsumer consumes subscriptions of Google Cloud Pub/Sub.
//
// A [Consumer] claims messages with Google's client (Subscriber.Receive), hands each one to an
// [inbox.Handler], and confirms it when the handler is done, not before. It reads the internal and
// the external form and CloudEvents, in structured and in binary mode.
//
// # Order
//
// Messages of one ordering key are handled one at a time, in the order in which Pub/Sub delivers
// them: that of publishing where the subscription has message ordering enabled. A message that
// fails is tried again here, with the backoff of Retry, while its lease is extended; what is behind
// it waits, other keys flow. When it becomes a dead letter, or is forwarded to the dead letters,
// its key goes on. A message without an ordering key has no order, and waits for no other; a
// CloudEvent with a partitionkey and no ordering key of Pub/Sub's uses that, one at a time among
// those that are claimed, in the order of arrival.
//
// A message is given back (nacked) where its next attempt would be after MaxExtension, and on a
// stop. All that is claimed of its key goes back with it, as Pub/Sub delivers a message that was
// given back and all behind it again, in order. What is on its way meanwhile is not handled: for
// two seconds nothing of the key is, until the first one that was given back has come again.
//
// Followers of one key can fill the room for claimed messages (MaxOutstandingMessages,
// MaxOutstandingBytes) while their head waits for its next attempt. Where workers are idle and
// nothing new fits, every second a quarter of what waits is given back, the last of the longest key
// first, so that other keys get in.
//
// Without message ordering on the subscription, one message of a key is handled at a time, in the
// order of arrival; a warning says so where the credentials may look at the subscription
// (pubsub.subscriptions.get, which roles/pubsub.viewer has).
//
// # At least once
//
// Pub/Sub delivers again what was not confirmed: after a crash when the lease ends (Lease, 10 s
// after its last extension at most), after a lost confirmation, and sometimes for no reason, also
// messages behind one that was given back that were confirmed before. A copy of a message that is
// claimed is not handled beside it: it shares its fate. Other copies are for the handler to tell,
// as inbox.Handle does.
//
// Confirmations of an ordinary subscription are sent without anybody looking at the answer, as
// Google's client does not show it; of one with exactly-once delivery they are looked at, logged
// and counted where they fail ([Stats.AckFailures]). Neither makes a message fail.
//
// # Dead letters
//
// A message that is abandoned (see [inbox.Retry] and [inbox.Permanent]) or cannot be read
//
//   - is published to the topic of DeadLetters, with its data, ordering key and attributes and
//     those of inbox.FieldDeadLetter..., and confirmed. A crash between the two repeats the dead
//     letter. The ordering key stays because the dead letters of a key are published one after the
//     other, so that they can be sent again in order. Where the attributes do not fit the limits of
//     Pub/Sub, added ones are left out. A topic that is missing or refuses blocks the message and
//     its key, loudly, until it takes the message.
//   - is given back, without that topic, where the subscription has a dead letter policy: its
//     handler does not run again in this process, and Pub/Sub takes the message away when it has
//     counted enough deliveries. A graceful stop counts as a delivery as well.
//   - is held, with neither: nothing is lost. It is tried again after the longest pause of Retry,
//     for as long as it takes; an error is logged once a minute, [Stats.Held] shows it. The key
//     of one that is abandoned waits behind it. Give a topic, or let [inbox.Handle] reject such messages.
//
// The Decoder is asked first about a message that cannot be read. The message is skipped where a
// flat field says a type that the handler skips, or where Unreadable says so. Without a topic,
// inbox.Handlers keep it in their table, also where the subscription has a policy. With a handler
// that keeps nothing the policy takes it, and costs its ordering key: Pub/Sub delivers what is behind
// it again, too, each time that it is given back, and these deliveries count. So set DeadLetters
// there. With neither it is held, and its key does not wait for it here, while Pub/Sub may deliver
// nothing more of its ordering key.
//
// Failures are counted in this process. With a dead letter policy Pub/Sub counts deliveries
// ([inbox.Message.Deliveries]), and all but the last one count as failures, so that processes that
// die of a message are counted too; but also stops, and messages that were given back.
//
// # Stopping and outages
//
// When the context of [Consumer.Run] ends, nothing new is taken; what waits is given back at once;
// running handlers have the time of ShutdownTimeout and are confirmed, and what waited behind them
// is given back after that. No attempt is charged, except by a dead letter policy. Messages on their way in the buffers of Google's
// client come to others when their lease ends. Run waits up to ten seconds more for the answers of
// a server that is out.
//
// Outages are waited for: Google's client connects again, with pauses of up to 30 s. One line is
// logged when the server is found not to answer, which takes up to half a minute, one when it does
// again. Connections come back faster with the dial options of brokers/gcppubsub.ClientOptions. One
// that has gone silent without being reset is noticed after up to five and a half minutes; give the
// client keepalive parameters where that is too long. These end Run, with advice:
//
//	NotFound             the subscription does not exist, or was deleted
//	PermissionDenied     pubsub.subscriptions.consume is missing (roles/pubsub.subscriber)
//	InvalidArgument      the name of the subscription, or a setting, is refused
//	FailedPrecondition   the subscription pushes, or was detached from its topic
//	Unimplemented        whatever answers is not Pub/Sub
//	the client is closed
//
// All others, Unauthenticated among them, are logged and tried again with pauses of up to 15 s.
//
// How far a subscription is behind is a metric of Google Cloud:
// pubsub.googleapis.com/subscription/oldest_unacked_message_age.
package pubsubconsumer
