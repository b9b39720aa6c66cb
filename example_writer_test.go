package fanout_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	_ "github.com/glebarez/go-sqlite" // the driver "sqlite"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/outbox"
)

// A service without GORM, on database/sql: so do those on sqlc, sqlx, ent and bun.
func ExampleWithWriter() {
	ctx, stop := context.WithCancel(context.Background())
	dir, err := os.MkdirTemp("", "fanout-example-")
	check(err)
	defer os.RemoveAll(dir)
	dsn := filepath.Join(dir, "shop.db") + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)"
	db, err := sql.Open("sqlite", dsn)
	check(err)
	defer db.Close()
	_, err = db.ExecContext(ctx, "CREATE TABLE orders (id TEXT PRIMARY KEY, customer TEXT)")
	check(err)

	events := envelope.NewCatalog("ordering")
	envelope.Register[OrderPlaced](events)
	cfg := &config.Config{Databases: map[string]config.Database{"default": {Driver: outbox.SQLite, DSN: config.Secret(dsn)}}}
	check(fanout.Migrate(ctx, cfg))
	writer, err := outbox.NewWriter(outbox.WriterConfig{Dialect: outbox.SQLite, Events: events, Routing: cfg.Routing()})
	check(err)

	broker := memory.New()
	relay, err := fanout.Open(ctx, cfg, fanout.WithWriter("default", writer), fanout.WithBroker("default", broker),
		fanout.WithLogger(slog.New(slog.DiscardHandler)))
	check(err)
	done := make(chan error)
	go func() { done <- relay.Run(ctx) }()

	tx, err := db.BeginTx(ctx, nil)
	check(err)
	defer func() { _ = tx.Rollback() }() // does nothing after the commit
	_, err = tx.ExecContext(ctx, "INSERT INTO orders VALUES (?, ?)", "42", "ada")
	check(err)
	order := envelope.Source{Aggregate: "Order", ID: "42"}
	written, err := writer.Insert(ctx, tx, envelope.NewEvent(OrderPlaced{"42", "ada"}).From(order))
	check(err)
	check(tx.Commit())
	written.Committed() // wakes the relay

	delivered, err := broker.Wait(ctx, "ordering::order", 1)
	check(err)
	stop()
	check(<-done)
	check(relay.Close())
	message, err := envelope.DecodeInternal(delivered[0].Payload)
	check(err)
	fmt.Println(message.Metadata.Headers.Type, string(message.Data))
	// Output: Ordering.OrderPlaced.v1 {"OrderID":"42","Customer":"ada"}
}
