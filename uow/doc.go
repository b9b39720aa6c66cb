// Package uow is the unit of work: aggregates that record events, and the journal of what a
// transaction is to flush when it commits.
//
// A domain type embeds [Aggregate] and calls Raise. With the plugin of package gormplugin on the
// GORM handle, whatever the aggregates that a transaction wrote have raised is written to the
// outbox when it commits, in the same transaction. [Publish] writes an event that belongs to no
// aggregate, and [Do] is the explicit form of the unit of work.
package uow
