// Package redisdedup keeps what package dedup remembers in Redis (6.2 or later, or what speaks its
// protocol): [New] is a dedup.Store whose entries expire by themselves, [NewTokens] is a
// dedup.Tokens whose keys stay until they are removed.
//
// # What Redis loses
//
// Redis answers before a write is safe. What it can lose, and where that is so:
//
//   - With appendfsync everysec, the default of the append-only file, a crash of the machine loses up to about a second of writes; without the
//     file, everything since the last snapshot; appendfsync always loses nothing,
//     unless no-appendfsync-on-rewrite suspends it while the file is rewritten.
//   - A failover loses what the replica had not got yet. [WithReplicas] waits for replicas, which makes that less likely, not impossible:
//     the one that takes over may be another one.
//   - Any maxmemory-policy but noeviction deletes keys when memory is short: those of a Store under the allkeys and volatile policies, as they
//     expire, those of Tokens under the allkeys policies.
//
// What a loss means is very different:
//
//   - A lost entry of a Store: the message may take effect once more, if a copy of it comes after its mark was cleared from the entity.
//   - A LOST TOKEN: THE MESSAGE IS NEVER PROCESSED. Its receiver takes it for a copy and confirms it, and no error is reported. Tokens need a
//     Redis that keeps its word: appendonly yes, appendfsync always, maxmemory-policy noeviction, replicas waited for where there is a
//     failover. Where that cannot be had, keep tokens in a database (package sqldedup).
//   - A token that comes back, as its removal was lost: a copy of the message that comes later takes effect again.
//
// [Check] asks the servers how they are set, and says what each setting means. Call it when the
// program starts.
//
// A client that repeats commands by itself (redis.Options.MaxRetries, 3 by default) may have a
// write done much later that was abandoned on before. What is added to a Store, and what is
// removed, may come as late as it likes. Tokens are created without such repetition: an error goes
// to the processor, which draws others, so that of those that are made late nothing is left but
// keys that go by age. Who creates tokens without a processor has to do the same, and must not send
// a message with a token whose creation was answered with an error.
package redisdedup
