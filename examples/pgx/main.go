// Command pgx is a service without GORM, on pgx and PostgreSQL, with the relay in the same process. A
// service on sqlc looks the same: its queries run in the same transaction, by queries.WithTx(tx).
//
//	export DATABASE_URL=postgres://localhost/shop
//	go run ./examples/pgx
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/postgres"
)

// OrderPlaced is a plain value. Its OrderID is filled in with the id of the order that raises it.
type OrderPlaced struct {
	OrderID  string `fanout:"id"`
	Customer string
}

func main() {
	if err := run(context.Background(), os.Getenv("DATABASE_URL"), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run places one order and writes what the relay has delivered.
func run(ctx context.Context, dsn string, out io.Writer) error {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, "CREATE TABLE IF NOT EXISTS orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer text NOT NULL)"); err != nil {
		return err
	}

	events := envelope.NewCatalog("ordering")
	envelope.Register[OrderPlaced](events)
	cfg := &config.Config{Databases: map[string]config.Database{"default": {Driver: outbox.Postgres, DSN: config.Secret(dsn)}}}
	if err := fanout.Migrate(ctx, cfg); err != nil { // "fanout migrate" does the same
		return err
	}
	// For relays in other processes, set notify of the database and WriterConfig.Notify.
	writer, err := outbox.NewWriter(outbox.WriterConfig{Dialect: outbox.Postgres, Events: events, Routing: cfg.Routing()})
	if err != nil {
		return err
	}
	broker := memory.New() // or redisstreams.Open(redisstreams.Settings{URL: "redis://localhost:6379"})
	relay, err := fanout.Open(ctx, cfg, fanout.WithWriter("default", writer), fanout.WithBroker("default", broker))
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- relay.Run(running) }()

	id, err := placeOrder(ctx, pool, writer, "ada")
	if err == nil {
		err = show(ctx, broker, id, out)
	}
	stop()
	return errors.Join(err, <-done, relay.Close()) //nolint:contextcheck // closing has its own time
}

// placeOrder commits the order and its event together, or neither.
func placeOrder(ctx context.Context, pool *pgxpool.Pool, writer *outbox.Writer, customer string) (id int64, err error) {
	var written *outbox.Written
	placed := envelope.NewEvent(OrderPlaced{Customer: customer}) // it keeps its message id, should this be repeated
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, "INSERT INTO orders (customer) VALUES ($1) RETURNING id", customer).Scan(&id); err != nil {
			return err
		}
		written, err = postgres.Insert(ctx, tx, writer, placed.From(envelope.Source{Aggregate: "Order", ID: strconv.FormatInt(id, 10)}))
		return err
	})
	if err != nil {
		return 0, err
	}
	written.Committed() // wakes the relay
	return id, nil
}

// show waits for the order's message.
func show(ctx context.Context, broker *memory.Broker, id int64, out io.Writer) error {
	for n := 1; ; n++ {
		delivered, err := broker.Wait(ctx, "ordering::order", n)
		if err != nil {
			return err
		}
		message, err := envelope.DecodeInternal(delivered[n-1].Payload)
		if err != nil {
			return err
		}
		if message.Metadata.Headers.Stream == fmt.Sprintf("ordering::order-%d", id) {
			_, err := fmt.Fprintln(out, message.Metadata.Headers.Type, string(message.Data))
			return err
		}
	}
}
