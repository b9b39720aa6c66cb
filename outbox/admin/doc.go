// Package admin is the part of a store that people use: the command line, the HTTP interface and
// the dashboard ask an [Administration], and so can an application.
//
// Looking: [Administration.Overview] for the state of each broker, List, Message and KeyBlocks for
// rows and blocked keys. Repairing: Requeue, Replay, Abandon and UnblockKey, each bounded, each of
// which keeps clear of what a worker has claimed. Running: Pause and Resume, Instances, Purge, the
// audit of what operators did, and the schema. A [Store] is this and the delivery of package
// driver.
package admin
