package fanout_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	_ "github.com/glebarez/go-sqlite" // the driver "sqlite"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/outbox"
)

// Accounts know the database of each tenant.
type Accounts struct {
	mu        sync.Mutex
	databases map[string]config.Database
}

// List is what the relay asks.
func (a *Accounts) List(context.Context) (map[string]config.Database, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.databases), nil
}

// Provision makes the tables of a tenant, and only then lists it.
func (a *Accounts) Provision(ctx context.Context, cfg *config.Config, name string, database config.Database) error {
	one := *cfg // with its table and brokers
	one.Databases = map[string]config.Database{name: database}
	if err := fanout.Migrate(ctx, &one); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.databases[name] = database
	return nil
}

// A database per tenant: one that is created while the relay runs is served without a restart.
func ExampleWithTenants() {
	ctx, stop := context.WithCancel(context.Background())
	dir, err := os.MkdirTemp("", "fanout-example-")
	check(err)
	defer os.RemoveAll(dir)

	accounts := &Accounts{databases: map[string]config.Database{}}
	cfg := &config.Config{Tenants: config.Tenants{Every: time.Second}}
	broker := memory.New()
	relay, err := fanout.Open(ctx, cfg, fanout.WithTenants(accounts.List), fanout.WithBroker("default", broker),
		fanout.WithLogger(slog.New(slog.DiscardHandler)))
	check(err)
	done := make(chan error)
	go func() { done <- relay.Run(ctx) }()

	dsn := filepath.Join(dir, "acme.db") + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)"
	check(accounts.Provision(ctx, cfg, "acme", config.Database{Driver: outbox.SQLite, DSN: config.Secret(dsn)}))

	db, err := sql.Open("sqlite", dsn)
	check(err)
	defer db.Close()
	events := envelope.NewCatalog("ordering")
	envelope.Register[OrderPlaced](events)
	writer, err := outbox.NewWriter(outbox.WriterConfig{Dialect: outbox.SQLite, Events: events, Routing: cfg.Routing()})
	check(err)
	disconnect, err := relay.ConnectWriter("acme", writer) // its commits wake the tenant
	check(err)
	defer disconnect()

	tx, err := db.BeginTx(ctx, nil)
	check(err)
	defer func() { _ = tx.Rollback() }() // does nothing after the commit
	order := envelope.Source{Aggregate: "Order", ID: "42"}
	written, err := writer.Insert(ctx, tx, envelope.NewEvent(OrderPlaced{"42", "ada"}).From(order))
	check(err)
	check(tx.Commit())
	written.Committed()

	delivered, err := broker.Wait(ctx, "ordering::order", 1)
	check(err)
	stop()
	check(<-done)
	check(relay.Close())
	fmt.Println(delivered[0].Type)
	// Output: Ordering.OrderPlaced.v1
}
