// Package nats publishes to NATS JetStream.
//
// A message becomes one NATS message: the data is the payload, and the flat fields are headers (id,
// type, ordering_key, correlation_id, content-type, traceparent ...). The header Nats-Msg-Id is for
// the server: the id, "@" and the subject. The BrokerMessageID is the stream and the sequence number,
// ORDERS:42.
//
// # Subjects
//
// The subject of a destination is a prefix ([Settings.SubjectPrefix]) and the destination with "." for
// each "::": ordering::order becomes ordering.order. Every byte that is not an ASCII letter, a
// digit, "-" or "_" becomes "%" and two hexadecimal digits, as does a "::" at the beginning, at the
// end or behind another one. So no two destinations share a subject. A subject has at most 240
// bytes; a destination that needs more is final for its messages. A stream has to take the subject,
// such as one with the subject ordering.>, or [Settings.CreateDestinations] creates it.
//
// # Duplicates
//
// A stream remembers message ids for its duplicate window, two minutes unless it says otherwise, and
// stores none twice on a subject. What is sent again within it counts as published: after an unknown outcome,
// but also when an operator replays published messages. A replay has to begin after the window, or
// consumers see nothing of it. Beyond the window, consumers deduplicate.
//
// # Order
//
// A message is sent when the one before it on its key was acknowledged, so a key costs a round trip
// per message; messages of different keys, and without one, are sent together. See Publish for the
// reasons. The client's retries and its buffer for reconnecting are off. An acknowledgment is
// waited for up to [Settings.Timeout], 10 s by default. A message of which the servers of the stream are
// still storing an earlier copy (10158) is sent again some milliseconds later in the same call,
// eight times in 2.5 s.
//
// # Headers
//
// Attributes and the correlation id are left out, and named in the Result, where a header cannot
// carry them: a name that is no token, or begins with Nats-, or is Status or Description; a value
// with line ends, or with blanks around it; what is beyond 32 KiB. Id and type must be headers, of
// 1,024 bytes at most each.
//
// The ordering key always travels. In it "%", line ends, and a blank at the beginning or the end are
// "%" and two hexadecimal digits, so that different keys remain different; url.PathUnescape gives it
// back as it was.
//
// # What errors mean
//
//	the server says                        class                     what to do
//	nothing (not connected)                unavailable broker        check that the server runs and can be reached
//	no acknowledgment                      unavailable broker        see nats stream info: its quorum, or an overload
//	authorization violation                unavailable broker        check the credentials
//	no responders                          unavailable destination   create a stream with the subject
//	no responders, of a stream             unavailable destination   start most of the servers that hold it
//	no responders, and no JetStream        unavailable broker        enable JetStream
//	no responders, JetStream is silent     unavailable broker        start most servers of the cluster
//	permissions violation                  unavailable destination   allow the user to publish to the subject
//	10059 stream not found                 unavailable destination   create a stream with the subject
//	10077 maximum messages exceeded ...    unavailable destination   the stream is full or cannot be written
//	10109 sealed, 10118 and 10194 offline  unavailable destination   see nats stream info
//	10166 per-message TTL is disabled      unavailable destination   let the stream allow it
//	10167 too many requests                unavailable destination   wait
//	10052, 10053, 10074, 10122 settings    unavailable destination   check those of CreateDestinations, and the limits
//	10002, 10023, 10028, 10047 resources   unavailable broker        raise limits of the account or server
//	10008, 10009 no leader                 unavailable broker        start most servers of the cluster
//	other codes 503                        unavailable broker        see the server's log
//	10035, 10039, 10076, 10120             unavailable broker        enable JetStream for the account
//	10158 an earlier copy is in process    unavailable partition     wait; only messages of its key do
//	10054 message size                     permanent                 raise max_msg_size of the stream
//	10097 headers too large                permanent                 send fewer attributes
//	above max_payload                      permanent                 raise max_payload
//	any other reason not to create one     unavailable destination   see CreateDestinations, and the account's limits
//	anything else                          retryable
//
// Permanent and retryable it is where others of the stream (of the server, above max_payload) get
// through, since a limit may be below what any message has: see [brokers.Refused].
//
// A user needs to publish to the subjects and to subscribe to _INBOX.>; for CheckDestination also
// to publish to $JS.API.STREAM.NAMES, and for CreateDestinations to $JS.API.STREAM.CREATE.*.
// Where it may publish to $JS.API.INFO, a server without JetStream, or a cluster without a leader, is told
// from a missing stream; where it may to $JS.API.STREAM.NAMES, so is a stream without a leader.
package nats
