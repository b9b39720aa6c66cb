// Command billing is the other half of the example orders: a service with a database of its own,
// which bills what was ordered, once.
//
//	export DATABASE_URL=postgres://localhost/billing REDIS_URL=redis://localhost:6379/0
//	go run ./examples/billing
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/brokers/redisstreams/redisconsumer"
	"github.com/gorm-fanout/fanout/inbox"
)

// OrderPlaced is what this service knows of the event: a type of its own, with the same JSON.
type OrderPlaced struct{ OrderID, Customer string }

// Invoice is what becomes of it.
type Invoice struct {
	OrderID  string `gorm:"primaryKey"`
	Customer string
}

func main() {
	// The context ends with SIGTERM: handlers in progress finish, and the rest is given back to the
	// group.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	db, err := gorm.Open(postgres.Open(os.Getenv("DATABASE_URL")), &gorm.Config{})
	check(err)
	check(db.AutoMigrate(&Invoice{}))
	_, err = inbox.Migrate(ctx, db)
	check(err)

	handlers := inbox.NewHandlers(db)
	inbox.On(handlers, "Ordering.OrderPlaced.v1", func(tx *gorm.DB, e OrderPlaced, _ *inbox.Message) error {
		return tx.Create(&Invoice{OrderID: e.OrderID, Customer: e.Customer}).Error // and the message is noted, in one transaction
	})

	options, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	check(err)
	client := redis.NewClient(options)
	defer client.Close()
	consumer, err := redisconsumer.NewConsumer(client, "billing", []string{"ordering::order"}, handlers, redisconsumer.Config{})
	check(err)
	purger, err := inbox.NewPurger(db, inbox.PurgeConfig{}) // copies are recognised for a week
	check(err)
	redeliverer, err := inbox.NewRedeliverer(db, "billing", handlers, inbox.RedeliverConfig{}) // what "fanout inbox redrive" lets go
	check(err)

	all, running := errgroup.WithContext(ctx)
	all.Go(func() error { return consumer.Run(running) })
	all.Go(func() error { return purger.Run(running) })
	all.Go(func() error { return redeliverer.Run(running) })
	check(all.Wait())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
