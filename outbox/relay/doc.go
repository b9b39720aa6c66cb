// Package relay delivers the rows of outbox tables to brokers.
//
// An [Engine] runs one [Processor] for each pair of database and broker, so that none can hold up
// another. A processor has workers; each claims batches through a driver.Delivery, publishes them
// through a brokers.Broker, and completes what became of them.
//
// Where to look: a claim is made in worker.go, a batch is published in delivery.go, a failure is
// classified in classify.go, an outage is recognised in breaker.go.
package relay
