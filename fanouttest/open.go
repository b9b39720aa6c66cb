package fanouttest

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/glebarez/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
	sqlitestore "github.com/gorm-fanout/fanout/outbox/sqlite"
)

// DefaultExternalBroker is the external broker that [Open] makes up for published events that name
// none.
const DefaultExternalBroker = "partner"

// Config refines the database of [OpenConfig]. The zero value of each field is what [Open] does.
type Config struct {
	// Routing says which brokers there are. The application's own, of config.Config.Routing, makes
	// the test as true as can be. Default: the internal broker "default", and as external ones
	// those that the event types name with envelope.To, and DefaultExternalBroker when a published
	// type names none. A broker that is named only at Raise or Publish is not known.
	Routing *outbox.Routing
	// Plugin options, such as gormplugin.WithEnricher. Default: none.
	Plugin []gormplugin.Option
	// GORM is the configuration of the handle: a naming strategy or a clock, say. It is copied.
	// Default: the zero value, with a logger that says nothing.
	GORM gorm.Config
}

// Open makes a database with the plugin, the outbox table and the tables of the models
// (AutoMigrate), private to the test and closed when it ends. See [OpenConfig], which takes more
// settings.
func Open(t TB, events *envelope.Catalog, models ...any) *gorm.DB {
	t.Helper()
	return OpenConfig(t, Config{}, events, models...)
}

// OpenConfig is [Open] with settings. The test fails when the catalog, the routing or a model has a
// problem.
//
// The database is a file of SQLite's in the test's TempDir, not written through to the disk. Unlike
// a database in memory it has several connections, so that it behaves like a server's: tests may
// run in parallel, code that reads beside a transaction sees what was committed before it, and of
// two transactions that write the second waits for the first. One that waits for more than five
// seconds, for a transaction of its own goroutine say, gets an error that uow.IsConflict knows.
func OpenConfig(t TB, settings Config, events *envelope.Catalog, models ...any) *gorm.DB {
	t.Helper()
	config := settings.GORM
	if config.Logger == nil {
		config.Logger = logger.Discard
	}
	path := filepath.Join(t.TempDir(), "fanouttest.db")
	db, err := gorm.Open(sqlite.Open(path+parameters), &config)
	if err != nil {
		t.Fatalf("fanouttest: open the database: %v", err)
	}
	sqlDB, err := db.DB()
	if err != nil {
		t.Fatalf("fanouttest: open the database: %v", err)
	}
	t.Cleanup(func() { _ = sqlDB.Close() })
	routing := routingFor(events)
	if settings.Routing != nil {
		routing = *settings.Routing
	}
	if err := db.Use(gormplugin.New(events, routing, settings.Plugin...)); err != nil {
		t.Fatalf("fanouttest: %v", err)
	}
	store, err := sqlitestore.New(sqlDB, routing.Table)
	if err == nil {
		_, err = store.Migrate(context.Background())
	}
	if err != nil {
		t.Fatalf("fanouttest: make the outbox table: %v", err)
	}
	if err := db.AutoMigrate(models...); err != nil {
		t.Fatalf("fanouttest: make the tables of the models: %v", err)
	}
	return db
}

// parameters of the database. Transactions take the write lock when they begin: one
// that has read something and then wants to write does not wait for the lock, but fails.
const parameters = "?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout(5000)&_txlock=immediate"

// routingFor makes up external brokers for the published types of a catalog.
func routingFor(events *envelope.Catalog) outbox.Routing {
	if events == nil {
		return outbox.Routing{} // the plugin says what is missing
	}
	var names []string
	for _, event := range events.Types() {
		for _, leaving := range event.Contracts() {
			to := leaving.Brokers()
			if to == nil {
				to = event.Brokers()
			}
			if to == nil {
				to = []string{DefaultExternalBroker}
			}
			names = append(names, to...)
		}
	}
	slices.Sort(names)
	var routing outbox.Routing
	for _, name := range slices.Compact(names) {
		routing.External = append(routing.External, outbox.Route{Broker: name})
	}
	return routing
}
