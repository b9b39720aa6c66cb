// Package inbox is the consumer's half of the outbox: it turns delivery at least once into processing exactly once.
//
// A consumer of inbox/redisstreams or inbox/gcppubsub hands each delivery, a [Message], to a [Handler] and confirms it at the broker
// when the handler says that it is done. The handler that most consumers want is [Handlers]: typed functions by event type, each run in a
// GORM transaction of the consumer's own database by [Handle], which notes the message in the same transaction. A copy of a message that
// was handled changes nothing, whoever sent it again and however long after.
//
// State that is not in that database needs more than one transaction: package inbox/dedup has the algorithm and its stores.
//
// The package links no broker and no database driver.
package inbox
