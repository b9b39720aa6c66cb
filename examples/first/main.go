package main

import (
	"context"
	"fmt"
	"log"

	"github.com/glebarez/sqlite"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/uow"
)

type OrderPlaced struct{ OrderID, Customer string } // an event: a plain value

type Order struct {
	ID, Customer  string
	uow.Aggregate // adds Raise; no columns, nothing in JSON
}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	db := must(gorm.Open(sqlite.Open("shop.db?_pragma=journal_mode(WAL)"), &gorm.Config{}))
	check(db.AutoMigrate(&Order{}))

	events := envelope.NewCatalog("ordering")
	envelope.Register[OrderPlaced](events)                        // envelope.Published(): partners get it, too
	cfg, broker := new(config.Config), memory.New()               // config.Load("fanout.yaml"), redisstreams.Open(...)
	check(db.Use(gormplugin.New(events, cfg.Routing())))          // captures events at commit
	check(fanout.Migrate(ctx, cfg, fanout.WithDB("default", db))) // makes the outbox table
	relay := must(fanout.Open(ctx, cfg, fanout.WithDB("default", db), fanout.WithBroker("default", broker)))
	stopped := make(chan struct{})
	go func() { check(relay.Run(ctx)); close(stopped) }() // delivers; or a process of its own: fanout relay

	check(db.Transaction(func(tx *gorm.DB) error {
		order := &Order{ID: "42", Customer: "ada"}
		order.Raise(OrderPlaced{order.ID, order.Customer})
		return tx.Save(order).Error // the event is written with the order, or not at all
	}))
	for _, message := range must(broker.Wait(ctx, "ordering::order", 1)) {
		fmt.Println(string(message.Payload))
	}
	stop()
	<-stopped // what the relay has claimed is finished, or released
}

func must[T any](value T, err error) T { check(err); return value }

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
