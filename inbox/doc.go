// Package inbox is the consumer's half of the outbox: it turns delivery at least once into
// processing exactly once.
//
// A consumer (brokers/redisstreams/redisconsumer, brokers/gcppubsub/pubsubconsumer, brokers/kafka/kafkaconsumer,
// brokers/rabbitmq/rabbitmqconsumer, brokers/nats/natsconsumer) hands each delivery, a [Message], to a [Handler] and
// confirms it at the broker when the handler says that it is done. The handler that
// most consumers want is [Handlers]: typed functions by event type, each run in a GORM transaction
// of the consumer's own database by [Handle], which notes the message in the same transaction. A
// copy of a message that was handled changes nothing, whoever sent it again and however long after.
//
//	_, err := inbox.Migrate(ctx, db)                  // db is the consumer's own *gorm.DB
//	handlers := inbox.NewHandlers(db)
//	inbox.On(handlers, "Ordering.OrderPlaced.v1", func(tx *gorm.DB, e OrderPlaced, m *inbox.Message) error {
//		return tx.Create(&Invoice{OrderID: e.OrderID}).Error
//	})
//	consumer, err := redisconsumer.NewConsumer(client, "billing", []string{"ordering::order"}, handlers, redisconsumer.Config{})
//	purger, err := inbox.NewPurger(db, inbox.PurgeConfig{})
//	redeliverer, err := inbox.NewRedeliverer(db, "billing", handlers, inbox.RedeliverConfig{})
//	// ... and Run each of the three until the service stops.
//
// Messages that other programs have written are events where a [Decoder] makes events of them; what
// cannot be read blocks no key, and becomes a dead letter or is skipped, as [Unreadable] says.
//
// State that is not in that database needs more than one transaction: package inbox/dedup has the
// algorithm and its stores.
//
// The package links no broker and no database driver.
package inbox
