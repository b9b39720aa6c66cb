package fanout_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"

	"github.com/glebarez/sqlite"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/brokers/signature"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/uow"
)

type OrderPlaced struct{ OrderID, Customer string }

type StockReserved struct{ SKU string }

type Order struct {
	ID, Customer, Status string
	uow.Aggregate
}

// One database and one broker, in Go alone, with nothing installed: SQLite in memory, a broker in memory,
// and the relay in the same process.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	events := envelope.NewCatalog("ordering")
	envelope.Register[OrderPlaced](events)

	db, err := gorm.Open(sqlite.Open("file:first?mode=memory&cache=shared"), &gorm.Config{})
	check(err)
	check(db.AutoMigrate(&Order{}))
	broker := memory.New() // or redisstreams.Open(redisstreams.Settings{URL: "redis://localhost:6379"})

	cfg := new(config.Config) // every setting has its default
	check(db.Use(gormplugin.New(events, cfg.Routing())))
	check(fanout.Migrate(ctx, cfg, fanout.WithDB("default", db))) // creates the outbox table
	relay, err := fanout.Open(ctx, cfg, fanout.WithDB("default", db), fanout.WithBroker("default", broker),
		fanout.WithLogger(slog.New(slog.DiscardHandler)))
	check(err)
	done := make(chan error)
	go func() { done <- relay.Run(ctx) }()

	check(db.Transaction(func(tx *gorm.DB) error {
		order := &Order{ID: "42", Customer: "ada", Status: "placed"}
		order.Raise(OrderPlaced{order.ID, order.Customer})
		return tx.Save(order).Error // the event is written with it, or not at all
	}))

	delivered, err := broker.Wait(ctx, "ordering::order", 1)
	check(err)
	stop()
	check(<-done) // what is claimed is finished or released
	message, err := envelope.DecodeInternal(delivered[0].Payload)
	check(err)
	fmt.Println(message.Metadata.Headers.Type, string(message.Data))
	// Output: Ordering.OrderPlaced.v1 {"OrderID":"42","Customer":"ada"}
}

// The second step: a partner gets the events that are marked as published, stripped of what is internal,
// and a file says so.
func Example_partner() {
	ctx, stop := context.WithCancel(context.Background())
	events := envelope.NewCatalog("ordering")
	envelope.Register[OrderPlaced](events, envelope.Published()) // partners may see it
	envelope.Register[StockReserved](events)                     // internal

	cfg, err := config.Parse([]byte(`
databases: {default: {driver: sqlite}}
outbox: {external_brokers: [partner]}
brokers:
  default: {type: memory}
  partner: {type: memory}
`), "fanout.yaml")
	check(err)
	db, err := gorm.Open(sqlite.Open("file:example?mode=memory&cache=shared"), &gorm.Config{})
	check(err)
	check(db.AutoMigrate(&Order{}))
	check(fanout.Migrate(ctx, cfg, fanout.WithDB("default", db))) // "fanout migrate" does it for a database on disk
	check(db.Use(gormplugin.New(events, cfg.Routing())))

	internal, partner := memory.New(), memory.New()
	relay, err := fanout.Open(ctx, cfg, fanout.WithDB("default", db), fanout.WithBroker("default", internal),
		fanout.WithBroker("partner", partner), fanout.WithLogger(slog.New(slog.DiscardHandler)))
	check(err)
	done := make(chan error)
	go func() { done <- relay.Run(ctx) }()

	check(db.Transaction(func(tx *gorm.DB) error {
		order := &Order{ID: "42", Customer: "ada", Status: "placed"}
		order.Raise(OrderPlaced{order.ID, order.Customer})
		if err := tx.Save(order).Error; err != nil {
			return err
		}
		return uow.Publish(tx, StockReserved{"teapot"})
	}))

	_, err = internal.Wait(ctx, "ordering::order", 1)
	check(err)
	_, err = internal.Wait(ctx, "ordering", 1) // the event without an aggregate
	check(err)
	delivered, err := partner.Wait(ctx, "ordering::order", 1)
	check(err)
	stop()
	check(<-done)
	message, err := envelope.DecodeExternal(delivered[0].Payload)
	check(err)
	fmt.Println(message.Metadata.Headers.Type, string(message.Data))
	// Output: Ordering.OrderPlaced.v1 {"OrderID":"42","Customer":"ada"}
}

// A broker that a partner shares with others: the relay signs what it sends there, and the partner, who has
// the public key, verifies it.
func Example_signature() {
	ctx, stop := context.WithCancel(context.Background())
	events := envelope.NewCatalog("ordering")
	envelope.Register[OrderPlaced](events, envelope.Published())

	cfg, err := config.Parse([]byte(`
databases: {default: {driver: sqlite}}
outbox: {external_brokers: [partner]}
brokers:
  default: {type: memory}
  partner:
    type: memory # kafka, say; memory is for tests
    sign: {2026-11: "${PARTNER_KEY}"}
`), "fanout.yaml", config.WithEnv(func(string) (string, bool) { return "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", true }))
	check(err)
	db, err := gorm.Open(sqlite.Open("file:signed?mode=memory&cache=shared"), &gorm.Config{})
	check(err)
	check(db.AutoMigrate(&Order{}))
	check(fanout.Migrate(ctx, cfg, fanout.WithDB("default", db)))
	check(db.Use(gormplugin.New(events, cfg.Routing())))
	partner := memory.New()
	relay, err := fanout.Open(ctx, cfg, fanout.WithDB("default", db), fanout.WithBroker("partner", partner), fanout.WithLogger(slog.New(slog.DiscardHandler)))
	check(err)
	done := make(chan error)
	go func() { done <- relay.Run(ctx) }()
	check(db.Transaction(func(tx *gorm.DB) error {
		order := &Order{ID: "42", Customer: "ada", Status: "placed"}
		order.Raise(OrderPlaced{order.ID, order.Customer})
		return tx.Save(order).Error
	}))
	delivered, err := partner.Wait(ctx, "ordering::order", 1)
	check(err)
	stop()
	check(<-done)

	var keys signature.Keys // of the partner
	check(keys.Add("2026-11", "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="))
	headers := maps.Collect(delivered[0].Fields)
	_, err = keys.Verify("ordering::order", headers, delivered[0].Payload)
	fmt.Println(err)
	_, err = keys.Verify("billing::invoice", headers, delivered[0].Payload) // copied into another stream
	fmt.Println(err != nil)
	// Output:
	// <nil>
	// true
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
