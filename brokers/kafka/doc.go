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
// destination is unavailable until it is changed, or [WithTopic] maps it. A missing topic makes its
// destination unavailable, unless [WithCreateTopics] creates it.
//
// # Partitions and order
//
// A message with an ordering key goes to the partition that Kafka's own Java clients choose for that
// key (murmur2), so that all messages of a key are in one partition, in order, also beside writers in
// other languages. It changes when partitions are added: let the consumers catch up first. Messages
// without a key are spread.
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
// # What errors mean
//
//	Kafka says                                   class                     what to do
//	nothing (no connection, no answer)           unavailable broker        check addresses, also those that the servers advertise
//	33, 34, 58 login                             unavailable broker        check user, password and mechanism
//	31 cluster rights                            unavailable broker        grant Write on topics (before Kafka 3.0 IdempotentWrite on the cluster)
//	7, 8, 13, 89 slow, throttled                 unavailable broker        see the servers' logs, and the quotas
//	14, 15, 16 no controller                     unavailable broker        bring servers back
//	35 version                                   unavailable broker        Kafka 0.11 or later is needed
//	45, 47, 49, 59, 90 the producer's number     unavailable broker        nothing: the next call begins with a new one
//	3, 100 no such topic                         unavailable destination   create it, or use WithCreateTopics
//	17, 37, 38, 44 cannot be created             unavailable destination   check the settings, or create it yourself
//	29 rights for the topic                      unavailable destination   grant Write and Describe
//	5, 6, 74, 75 no leader                       unavailable destination   nothing: it passes
//	19, 20 not enough replicas                   unavailable destination   bring servers back
//	56 disk                                      unavailable destination   see the log of the partition's leader
//	32, 43 the topic takes none of ours          unavailable destination   check this machine's clock, or message.format.version
//	10, 18 too large                             permanent                 raise max.message.bytes or segment.bytes
//	87 not for this topic                        permanent                 see cleanup.policy: compact needs a key
//	2 damaged                                    retryable                 -
//	anything else                                retryable
//
// A user needs Write and Describe on the topics, for WithCreateTopics also Create; before Kafka 3.0
// IdempotentWrite on the cluster as well.
package kafka
