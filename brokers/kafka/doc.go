// Package kafka publishes to Kafka (0.11 or later) and to servers that speak its protocol.
//
// A message becomes one record: the value is the payload, the key is the ordering key (none where the
// message has none), and the headers are the flat fields (id, type, ordering_key, correlation_id,
// content-type, traceparent ...). The BrokerMessageID is topic, partition and offset,
// ordering.order:3:42.
//
// # Topics
//
// The topic of a destination is the destination with "." for each "::": ordering::order becomes
// ordering.order. Kafka takes ASCII letters, digits, ".", "_" and "-", 249 of them at most; another
// destination is unavailable until it is changed, or [Settings.Topic] maps it. A missing topic makes its
// destination unavailable, unless [Settings.CreateDestinations] creates it.
//
// # Partitions and order
//
// A message with an ordering key goes to the partition that Kafka's own Java clients choose for that
// key (murmur2), so that all messages of a key are in one partition, in order, also beside writers in
// other languages. It changes when partitions are added, with what goes out together next: let the
// consumers catch up first. Messages without a key are spread.
//
// The producer is idempotent and waits for all in-sync replicas (acks=all). Messages go out in rounds of
// which each partition gets one batch, which Kafka takes or refuses as a whole; see Publish. A batch
// that the client repeats is stored once. What is sent again by a later call, after an unknown
// outcome, may be stored twice: consumers deduplicate by the id.
//
// # Headers
//
// Attributes and the correlation id that do not fit into the limit of a message, with all that is
// before them, are left out, and named in the Result.
//
// # Servers that are out
//
// The partitions of a server that cannot be reached, is silent or stands still are unavailable, and those
// of the others go on: a server that has said nothing for a second is asked, and is out where it does not
// answer within another one although others do. From then on nothing is sent to its partitions, so that it
// costs no call any time; messages without a key go to other partitions. Clients that were connected to
// it are closed. It is asked again after 1 s, 2 s, 4 s and so on, up to every 30 s, and all goes on when it
// answers, or when its partitions have another leader, which calls that are made at that moment may learn
// only by one refusal. Where no server answers, the broker is unavailable. A client that is made while
// configured servers do not answer, under names other than those that they advertise, takes up to 3 s for
// each of them.
//
// A server that closes connections at the first request, talks no Kafka, has a certificate that is not
// trusted or refuses the login, although others answer, is out at once. One that has the client wait for a
// quota is not out.
//
// The client itself repeats little, since what a relay holds back keeps its attempts: what is refused for
// the moment 8 times, within 0.2 s; what is stored but not on enough replicas (7, 20) for 2 s. A round that
// is not confirmed within the timeout ([Settings.Timeout], or the caller's deadline where that is sooner) is an
// outage of the partitions that have not, and where that happens again they are left alone for as long, and
// then twice as long, up to a minute. So are all partitions of a server that has confirmed none in two such
// rounds, with several of them. After each pause one call tries whether it confirms again.
//
// # What errors mean
//
//	Kafka says                                 class                     what to do
//	nothing, no server of the cluster          unavailable broker        check addresses, also those that the servers advertise
//	nothing, one server of several             unavailable partition     check that server, and the address that it advertises
//	nothing, and hangs up at messages          retryable partition       see its log, and that of a proxy between
//	33, 34, 58 login, refused by each server   unavailable broker        check user, password and mechanism
//	31 cluster rights                          unavailable broker        grant Write on topics (before Kafka 3.0 IdempotentWrite on the cluster)
//	89 throttled                               unavailable broker        raise the user's quota, or publish more slowly
//	nothing in time, since a quota has it wait unavailable partition     raise the user's quota, or publish more slowly
//	14, 15, 16, 41 no controller               unavailable broker        bring servers back
//	21, 35 version                             unavailable broker        Kafka 0.11 or later is needed
//	3, 100, 103 no such topic                  unavailable destination   create it, or use CreateDestinations
//	17, 37, 38, 39, 40, 44 cannot be created   unavailable destination   check the settings, or create it yourself
//	29 rights for the topic                    unavailable destination   grant Write and Describe
//	32, 43, 76 the topic takes none of ours    unavailable destination   check this machine's clock, message.format.version, compression.type
//	5, 6, 9, 72, 74, 75, 78 no leader          unavailable partition     nothing: it passes
//	7, 19, 20 not enough replicas              unavailable partition     bring servers back
//	56, 57 disk, -1, 8, 13 unknown             unavailable partition     see the log of the partition's leader
//	45, 47, 48, 49, 51, 59, 90 the producer    unavailable partition     nothing: the next call begins with a new one
//	10, 18 too large                           permanent destination     raise max.message.bytes or segment.bytes
//	87 not for this topic                      permanent destination     see cleanup.policy: compact needs a key
//	2 damaged                                  retryable partition       see the log of the partition's leader
//	another that Kafka says passes             unavailable partition     see the log of the partition's leader
//	anything else                              retryable destination     see the log of the partition's leader
//
// What a partition's leader says of its state is the partition's; where no partition of the topic can be
// used it is the destination's.
//
// Permanent and retryable with a destination are refusals of which it is unknown whether they are the
// message's or the topic's ([brokers.Refused]): where others of the topic are delivered, it is the
// message's, and until then the topic counts as unavailable. So a topic that was made compacted, or
// whose limit was set too low, costs no message its life. Code 2 may be said of all messages of a
// partition, and a server may hang up at all of them, whatever other partitions take: that becomes a
// refusal of the destination where others of the partition are confirmed after the message was refused, in
// the same call or before it is refused again. What a server hangs up at is sent again in
// halves, as what is refused is, until it has hung up at two messages, each sent alone, and confirmed
// none between: then its partitions are out.
//
// A user needs Write and Describe on the topics, for CreateDestinations also Create; before Kafka 3.0
// IdempotentWrite on the cluster as well.
package kafka
