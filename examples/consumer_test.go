package examples_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/alicebob/miniredis/v2"
	"github.com/glebarez/sqlite"
	"github.com/redis/go-redis/v9"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers/redisstreams/redisconsumer"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/inbox"
	sqlitestore "github.com/gorm-fanout/fanout/outbox/sqlite"
	"github.com/gorm-fanout/fanout/uow"
)

// OrderPlaced is the event of both services.
type OrderPlaced struct{ OrderID, Customer string }

// Order is the producer's aggregate.
type Order struct {
	ID, Customer, Status string
	uow.Aggregate
}

// Sales is the consumer's own table.
type Sales struct {
	Customer string `gorm:"primaryKey"`
	Orders   int
}

// An order becomes a row of the outbox, an entry of a stream, and, exactly once, a number in the
// database of the consumer.
func Example_consumer() {
	ctx, stop := context.WithCancel(context.Background())
	server, err := miniredis.Run() // stands for your Redis
	check(err)
	defer server.Close()
	dir, err := os.MkdirTemp("", "fanout-example-")
	check(err)
	defer os.RemoveAll(dir)

	// The producer: a service with an outbox and its relay.
	events := envelope.NewCatalog("ordering")
	envelope.Register[OrderPlaced](events)
	cfg, err := config.Parse([]byte("databases: {default: {driver: sqlite}}\nbrokers: {default: {type: redis, url: redis://"+server.Addr()+"}}"), "fanout.yaml")
	check(err)
	orders := openSQLite(filepath.Join(dir, "orders.db"))
	check(orders.AutoMigrate(&Order{}))
	migrate(ctx, orders)
	check(orders.Use(gormplugin.New(events, cfg.Routing())))
	relay, err := fanout.Open(ctx, cfg, fanout.WithDB("default", orders), fanout.WithLogger(slog.New(slog.DiscardHandler)))
	check(err)

	// The consumer: another service, with a database of its own.
	sales := openSQLite(filepath.Join(dir, "sales.db"))
	check(sales.AutoMigrate(&Sales{}))
	_, err = inbox.Migrate(ctx, sales)
	check(err)
	counted := make(chan string, 10)
	handlers := inbox.NewHandlers(sales)
	inbox.On(handlers, "Ordering.OrderPlaced.v1", func(tx *gorm.DB, e OrderPlaced, _ *inbox.Message) error {
		counted <- e.OrderID
		return tx.Exec("INSERT INTO sales (customer, orders) VALUES (?, 1) ON CONFLICT DO UPDATE SET orders = orders + 1", e.Customer).Error
	})
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	consumer, err := redisconsumer.NewConsumer(client, "sales", []string{"ordering::order"}, handlers,
		redisconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{Log: slog.New(slog.DiscardHandler)}})
	check(err)
	done := make(chan error)
	go func() { done <- relay.Run(ctx) }()
	go func() { done <- consumer.Run(ctx) }()

	for _, id := range []string{"41", "42"} {
		check(orders.Transaction(func(tx *gorm.DB) error {
			order := &Order{ID: id, Customer: "ada", Status: "placed"}
			order.Raise(OrderPlaced{order.ID, order.Customer})
			return tx.Save(order).Error
		}))
		<-counted
		if id == "41" { // the broker delivers the message twice, as brokers may
			first, err := client.XRangeN(ctx, "ordering::order", "-", "+", 1).Result()
			check(err)
			check(client.XAdd(ctx, &redis.XAddArgs{Stream: "ordering::order", Values: first[0].Values}).Err())
		}
	}
	stop() // both finish the messages that they have claimed
	check(<-done)
	check(<-done)
	check(client.Close())

	var row Sales
	check(sales.First(&row, "customer = ?", "ada").Error)
	fmt.Println(row.Customer, row.Orders)
	// Output: ada 2
}

func openSQLite(path string) *gorm.DB {
	db, err := gorm.Open(sqlite.Open(path+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)"), &gorm.Config{})
	check(err)
	return db
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
