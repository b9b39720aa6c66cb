// Package driver is the contract of delivery, for those who write a store and for the relay that
// uses it. Applications import it only to name types.
//
// Begin with [Delivery]: a [Claim] takes a [Batch] of [Message] rows under a [Lease], a
// [Completion] writes what became of them, and both travel in one Exchange. [Delivery.Defer] takes
// rows that must wait out of the way of claims, [Delivery.Ready] says which shards have work. A
// database that can tell of commits of other processes is a [Listener] as well.
//
// Which rows a claim takes is decided by package claims, the same way on every database; a store
// brings plain statements. What people ask of a table is in package admin; package storetest checks
// an implementation of both.
package driver
