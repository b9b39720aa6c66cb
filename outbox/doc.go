// Package outbox is the heart of Fanout: rows, their routing to brokers, their state machine, and the processors that
// deliver them.
//
// A row is one message for one broker. Writers insert rows in their business transaction (see package gormplugin, or
// plain SQL). For each pair of database and broker a [Processor] claims batches of rows through a [Delivery], publishes
// them through a brokers.Broker and completes the outcome; an [Engine] runs the processors. No database driver is linked
// here: the stores are packages of their own.
package outbox
