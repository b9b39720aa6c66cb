// Command orders is the program of the README as a service: on PostgreSQL, with a partner, and the
// relay in the same process.
//
//	export DATABASE_URL=postgres://localhost/shop REDIS_URL=redis://localhost:6379/0
//	go run ./cmd/fanout migrate --config examples/orders/fanout.yaml
//	go run ./examples/orders examples/orders/fanout.yaml
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers/gcppubsub"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/uow"
)

// OrderPlaced is a plain value.
type OrderPlaced struct{ OrderID, Customer string }

// StockReserved is an event without an aggregate.
type StockReserved struct{ SKU string }

// Order is an aggregate: it embeds uow.Aggregate, which adds no column and nothing in JSON.
type Order struct {
	ID, Customer, Status string
	uow.Aggregate
}

func main() {
	// The context ends with SIGTERM: the relay finishes or releases the claimed rows before the
	// program ends.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	events := envelope.NewCatalog("ordering")
	envelope.Register[OrderPlaced](events, envelope.Published()) // partners may see it
	envelope.Register[StockReserved](events)                     // internal

	cfg, err := config.Load(os.Args[1])
	check(err)
	db, err := gorm.Open(postgres.Open(os.Getenv("DATABASE_URL")), &gorm.Config{})
	check(err)
	check(db.AutoMigrate(&Order{}))
	check(db.Use(gormplugin.New(events, cfg.Routing()))) // one plugin per handle

	relay, err := fanout.Open(ctx, cfg, fanout.WithDB("default", db), fanout.WithBrokerType(gcppubsub.Type()))
	check(err)
	done := make(chan error, 1)
	go func() { done <- relay.Run(ctx) }()

	check(db.Transaction(func(tx *gorm.DB) error {
		order := &Order{ID: "42", Customer: "ada", Status: "placed"}
		order.Raise(OrderPlaced{order.ID, order.Customer})
		if err := tx.Save(order).Error; err != nil {
			return err
		}
		return uow.Publish(tx, StockReserved{"teapot"})
	}))

	// ... serve requests ...
	check(<-done) // wait for the relay: claimed rows would stay leased for up to outbox.lease
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
