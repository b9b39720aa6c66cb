package fanout_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/glebarez/sqlite"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	sqlitestore "github.com/gorm-fanout/fanout/outbox/sqlite"
	"github.com/gorm-fanout/fanout/uow"
)

type OrderPlaced struct{ OrderID, Customer string }

type StockReserved struct{ SKU string }

type Order struct {
	ID, Customer, Status string
	uow.Aggregate
}

// The whole way with nothing installed: SQLite in memory, in-memory brokers, and the relay in the
// same process.
func Example() {
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
	migrate(ctx, db) // "fanout migrate" does it for a database on disk
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

func migrate(ctx context.Context, db *gorm.DB) {
	sqlDB, err := db.DB()
	check(err)
	store, err := sqlitestore.New(sqlDB, "")
	check(err)
	_, err = store.Migrate(ctx)
	check(err)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
