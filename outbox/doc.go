// Package outbox is what writers and all others share: rows, their routing to brokers, their
// states, and the statement that inserts them.
//
// A row is one message for one broker. [Routing] turns an event into rows, an [Inserter] writes
// them in the business transaction. Package gormplugin does both at a commit, a [Writer] in
// transactions without GORM, and plain SQL can do it as well. What happens to a row afterwards is
// said by its [Status].
//
// The other rooms of the house are packages of their own, so that a writer links nothing of them:
//
//   - internal/store/driver is the contract that a database has to fulfil: what a relay asks of the table;
//   - outbox/admin is what people ask of it: look, requeue, replay, abandon, unblock, pause, purge;
//   - outbox/relay delivers: engine, processors, workers;
//   - outbox/postgres, sqlserver and sqlite are stores, internal/store/storetest checks them.
package outbox
