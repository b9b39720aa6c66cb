// Package redisstreams publishes to Redis Streams.
//
// A message becomes one entry: the field data holds the payload, and the flat fields of the message
// follow (id, type, ordering_key, correlation_id, content-type, traceparent ...), so that a
// consumer can filter, and keep order, without parsing:
//
//	XADD ordering::order * data {...} id 0197... type Ordering.OrderPlaced.v1 ordering_key ordering::order-42 ...
//
// # How messages are sent
//
// Messages go in chunks, one pipeline for each. A message whose key occurs once in its chunk, or
// that has none, is added by an XADD of its own. The messages of keys that occur more often are
// added together, because with plain XADDs the followers of a failed one would be in the stream before
// the failure is known. That is one transaction (MULTI, EXEC), all of it or nothing: what the server
// refuses, it refuses before EXEC. If that need not be about all of them, one run of a Lua script adds
// them instead, in order, which stops a key at its first failure. The script takes twice the server's
// time of a transaction. It is used for [Settings.MaxAge], on a cluster or a ring, and where the server,
// a proxy or the user's rights know no MULTI, which is found out by an empty transaction behind the
// first script. No chunk of a stream is sent before the one before it was answered.
//
// Redis 5 or later (6.2 for [Settings.MaxAge]), Valkey, and anything else that speaks their protocol and
// runs scripts. An ACL user needs XADD, EVALSHA and EVAL on the streams, and PING; should have MULTI and
// EXEC; with [Settings.MaxAge] TIME too, with [Settings.Replicas] WAIT.
//
// # What errors mean
//
// Nothing that the server says about itself is a message's fault: messages wait, without losing an
// attempt, until it is over. Where a server is out, all of the broker is; on a cluster or a ring it is
// one node's trouble, and the streams that others have carry on, as they do where a destination is
// out.
//
//	the server says               unavailable   what to do
//	OOM                           server        raise maxmemory, or trim streams; never evict them (maxmemory-policy)
//	READONLY                      server        connect to the primary, by Sentinel where there is a failover
//	LOADING                       server        wait: the server is starting
//	MASTERDOWN                    server        connect to the primary
//	CLUSTERDOWN                   server        see CLUSTER INFO
//	MISCONF                       server        see the server's log: it cannot save to disk
//	NOREPLICAS                    server        connect replicas (min-replicas-to-write)
//	BUSY                          server        end the script that runs too long (SCRIPT KILL)
//	NOAUTH, ERR Protocol error: unauthenticated
//	                              server        give the URL a user and a password
//	WRONGPASS, ERR AUTH, ERR invalid password
//	                              server        check user and password
//	ERR DB index                  server        check the database at the end of the URL
//	ERR max number of clients     server        raise maxclients, or lower pool_size; often seen as a broken connection
//	ERR WAIT cannot be used with replica
//	                              server        connect to the primary
//	ERR unknown command, ERR Unknown Redis command, ERR unknown subcommand
//	                              server        use a server, or a proxy, that knows AUTH, XADD, EVALSHA and EVAL
//	NOPERM, ERR The user executing the script
//	                              destination   give the user XADD, EVALSHA and EVAL on the stream
//	WRONGTYPE                     destination   the key holds something else than a stream: rename one of them
//	MOVED, ASK, CROSSSLOT         destination   use New with a cluster client; with one it is seen only while slots move
//	TRYAGAIN                      destination   wait: slots are being moved
//	anything else                 -             retryable: the message's own attempt has failed
//
// Too few replicas within their time ([Settings.Replicas]), and a connection that is refused, reset, cut
// off or silent until the deadline, are an outage of the server, too. Whether the messages that met a
// broken connection arrived is not known. They are sent again under the same ids, and consumers
// deduplicate.
//
// Final for a message are an empty destination, a payload above the limit, and an entry of more than
// 1 GiB, which Redis does not store. Attributes beyond the 1,000th, and one with the name data, are left out.
package redisstreams
