package fanout

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	_ "github.com/glebarez/sqlite"      // the database/sql driver "sqlite", which needs no C compiler
	_ "github.com/microsoft/go-mssqldb" // the database/sql driver "sqlserver"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/brokers/rabbitmq"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/brokers/webhook"
	"github.com/gorm-fanout/fanout/cleanup"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/mysql"
	"github.com/gorm-fanout/fanout/outbox/postgres"
	"github.com/gorm-fanout/fanout/outbox/sqlite"
	"github.com/gorm-fanout/fanout/outbox/sqlserver"
)

// OpenStore connects to one database of the configuration, for tools that look at the table or
// migrate it. It does not check the schema. The caller closes the store. Of the options, WithDB
// counts.
func OpenStore(ctx context.Context, cfg *config.Config, name string, opts ...Option) (driver.Store, error) {
	o := gather(opts)
	cfg = withHandles(cfg, o)
	if _, ok := cfg.Databases[name]; !ok {
		return nil, fmt.Errorf("fanout: the configuration has no database %q (it has %q)", name, slices.Sorted(maps.Keys(cfg.Databases)))
	}
	store, err := openStore(ctx, cfg, name, o)
	if err != nil {
		return nil, fmt.Errorf("fanout: database %q: %w", name, err)
	}
	return store, nil
}

// OpenBroker makes the client of one broker of the configuration, for tools that ask whether it is
// there. The caller closes it. Of the options, WithBroker and WithBrokerType count.
func OpenBroker(ctx context.Context, cfg *config.Config, name string, opts ...Option) (brokers.Broker, error) {
	o := gather(opts)
	cfg, err := complete(cfg, o)
	if err != nil {
		return nil, err
	}
	broker, ok := cfg.Brokers[name]
	if !ok {
		return nil, fmt.Errorf("fanout: the configuration has no broker %q (it has %q)", name, slices.Sorted(maps.Keys(cfg.Brokers)))
	}
	opened, err := openBroker(ctx, name, broker, o)
	if err != nil {
		return nil, fmt.Errorf("fanout: broker %q: %w", name, err)
	}
	return opened, nil
}

const (
	// spareConns are the connections of a store beside one for each worker: for renewals, probes and
	// the purge.
	spareConns = 3
	// mostConns bounds a store's connections, however many brokers share it. Exchanges are short, and a
	// server plans each statement anew on each connection: with 70 of them the deliveries to 32 brokers
	// cost the database twice as much ("make bench ARGS=brokers").
	mostConns = 6
)

func openStore(ctx context.Context, cfg *config.Config, name string, o *options) (driver.Store, error) {
	store, err := openTable(ctx, cfg, name, o)
	if err == nil {
		store.Know(cfg.BrokerNames()...)
	}
	return store, err
}

func openTable(ctx context.Context, cfg *config.Config, name string, o *options) (driver.Store, error) {
	database := cfg.Databases[name]
	handle := o.handles[name]
	dsn := database.DSN.Reveal()
	if dsn == "" && handle != nil {
		dsn = dsnOf(handle)
	}
	table := cfg.Routing().WithDefaults().Table
	switch {
	case handle != nil && handle.Name() != string(database.Driver):
		return nil, fmt.Errorf("the handle given to WithDB is of driver %s, the configuration says %s", handle.Name(), database.Driver)
	case database.Driver == outbox.SQLite && handle != nil:
		return shareSQLite(ctx, handle, dsn, table)
	case dsn == "":
		return nil, errors.New("there is no dsn: set databases." + name + ".dsn, or pass the handle with fanout.WithDB")
	}
	conns := spareConns
	for _, broker := range cfg.BrokerNames() {
		policy := policyOf(cfg, broker, o).WithDefaults()
		conns += policy.Workers
	}
	database.DSN = config.Secret(dsn)
	if database.Driver == outbox.SQLite {
		warnOfTwoSQLites(ctx, name, o.log)
	}
	return connect(ctx, database, table, min(conns, mostConns), false)
}

// connect opens a store and its connections; brief says that it answers a question or two.
func connect(ctx context.Context, database config.Database, table string, conns int, brief bool) (driver.Store, error) {
	dsn := database.DSN.Reveal()
	switch database.Driver {
	case outbox.Postgres:
		opts := []postgres.Option{postgres.WithMaxConns(conns)}
		if brief {
			opts = append(opts, postgres.WithBriefUse())
		}
		store, err := postgres.Open(ctx, dsn, table, opts...)
		if err != nil {
			return nil, err // and not a store that is a nil *Store
		}
		return store, nil
	case outbox.SQLServer:
		return openSQL(ctx, "sqlserver", dsn, conns, func(db *sql.DB) (driver.Store, error) { return sqlserver.New(db, table) })
	case outbox.SQLite:
		if strings.Contains(dsn, ":memory:") || strings.Contains(dsn, "mode=memory") {
			return nil, errors.New("an in-memory SQLite database cannot be opened twice: leave dsn empty and pass the handle with fanout.WithDB")
		}
		return openSQL(ctx, "sqlite", sqliteDSN(dsn), conns, func(db *sql.DB) (driver.Store, error) { return sqlite.New(db, table) })
	case outbox.MySQL:
		store, err := mysql.Open(ctx, dsn, table, mysql.WithMaxConns(conns))
		if err != nil {
			return nil, err // and not a store that is a nil *Store
		}
		return store, nil
	default:
		return nil, fmt.Errorf("driver %q is not supported: use %s", database.Driver, outbox.DialectNames)
	}
}

// dsnOf reads the DSN from a handle that was opened with GORM's own drivers, which all have a field
// of that name; empty where it cannot be known. For SQLite the handle itself is used.
func dsnOf(db *gorm.DB) string {
	dialector := reflect.Indirect(reflect.ValueOf(db.Dialector))
	if dialector.Kind() != reflect.Struct || db.Name() == string(outbox.SQLite) {
		return ""
	}
	field, ok := dialector.Type().FieldByName("DSN")
	if !ok || field.Type.Kind() != reflect.String {
		return ""
	}
	dsn, err := dialector.FieldByIndexErr(field.Index) // of what it embeds, which may be nil
	if err != nil {
		return ""
	}
	return dsn.String()
}

// shareSQLite uses the application's own handle, which is the only way to an in-memory database, and the
// only safe one to a file that the application may have opened with another SQLite library: two of
// them in one process drop each other's locks, and corrupt it. Source: sqlite.org/howtocorrupt.html, 2.2.1.
func shareSQLite(ctx context.Context, handle *gorm.DB, dsn, table string) (driver.Store, error) {
	db, err := handle.DB()
	if err != nil {
		return nil, fmt.Errorf("read the handle: %w", err)
	}
	if err := checkSQLiteFile(ctx, db, dsn); err != nil {
		return nil, err
	}
	return sqlite.New(db, table)
}

// checkSQLiteFile compares the file of a handle with that of a dsn, where both can be found.
func checkSQLiteFile(ctx context.Context, db *sql.DB, dsn string) error {
	path, _, _ := strings.Cut(strings.TrimPrefix(dsn, "file:"), "?")
	configured, err := os.Stat(path)
	if err != nil {
		return nil //nolint:nilerr // it is not used, and need not be there
	}
	var opened string
	if err := db.QueryRowContext(ctx, "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&opened); err != nil {
		return fmt.Errorf("ask the handle which file it has: %w", err)
	}
	if file, err := os.Stat(opened); err == nil && os.SameFile(file, configured) {
		return nil
	}
	return fmt.Errorf("the handle given to WithDB has opened %q, and the dsn says %q: the relay uses the handle: leave dsn empty, or give the handle of that file", opened, path)
}

// foreignSQLite is the name under which SQLite libraries of C register with database/sql.
const foreignSQLite = "sqlite3"

// warnOfTwoSQLites is for a file that the relay opens by itself in a program that has another SQLite library,
// too.
func warnOfTwoSQLites(ctx context.Context, name string, log *slog.Logger) {
	if slices.Contains(sql.Drivers(), foreignSQLite) {
		log.WarnContext(ctx, "second SQLite library in this process", "database", name,
			"effect", "should both have this file open, they drop each other's locks, and the file is corrupted",
			"remedy", "pass the application's handle with fanout.WithDB, or run the relay as a process of its own")
	}
}

// sqliteDSN adds what several connections to one file need, unless the DSN sets it: a write-ahead
// log, so that readers and the writer do not wait for each other, and patience with the other
// writers.
func sqliteDSN(dsn string) string {
	separator := "?"
	if strings.Contains(dsn, "?") {
		separator = "&"
	}
	for _, pragma := range []string{"journal_mode(WAL)", "busy_timeout(10000)"} {
		if name, _, _ := strings.Cut(pragma, "("); !strings.Contains(dsn, name) {
			dsn += separator + "_pragma=" + pragma
			separator = "&"
		}
	}
	return dsn
}

// existingSQLite is a DSN that makes no file where there is none: that of a tenant that was dropped must
// not come back, empty, with the next visit.
func existingSQLite(dsn string) (string, error) {
	if strings.HasPrefix(dsn, "file:") {
		if strings.Contains(dsn, "mode=") {
			return dsn, nil
		}
		separator := "?"
		if strings.Contains(dsn, "?") {
			separator = "&"
		}
		return dsn + separator + "mode=rw", nil
	}
	path, _, _ := strings.Cut(dsn, "?")
	if _, err := os.Stat(path); err != nil && !strings.Contains(path, ":memory:") { // which has a remedy of its own
		return "", fmt.Errorf("sqlite: cannot open the tenant's file: %w", err)
	}
	return dsn, nil
}

// ownedStore closes the pool that was opened for it.
type ownedStore struct {
	driver.Store
	db *sql.DB
}

// Close closes the store and its pool.
func (s ownedStore) Close() error { return errors.Join(s.Store.Close(), s.db.Close()) }

func openSQL(ctx context.Context, driver, dsn string, conns int, open func(*sql.DB) (driver.Store, error)) (driver.Store, error) {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot read the dsn; check its form", driver) // the cause would quote the password
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	if err := db.PingContext(ctx); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("%s: cannot reach the database: %w", driver, err)
	}
	store, err := open(db)
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return ownedStore{Store: store, db: db}, nil
}

// BrokerTypes are the types of brokers that every program has which imports this package: what
// [WithBrokerType] need not name. Pass them to config.WithBrokerTypes where a configuration is to be
// checked without being opened.
func BrokerTypes() []adapter.Type {
	return []adapter.Type{redisstreams.Type(), rabbitmq.Type(), webhook.Type(), memory.Type()}
}

// openBroker opens a broker of a configuration whose sections were looked at: see [linked].
func openBroker(ctx context.Context, name string, cfg config.Broker, o *options) (brokers.Broker, error) {
	if cfg.Settings == nil {
		return nil, notLinked(cfg.Type, o)
	}
	return cfg.Settings.Open(ctx, name)
}

// given are the settings of a broker that is open already.
type given struct{ brokers.Broker }

// Check implements adapter.Settings.
func (given) Check(adapter.Section) {}

// Open implements adapter.Settings.
func (g given) Open(context.Context, string) (brokers.Broker, error) { return g.Broker, nil }

// withHandles is the configuration with the handles as its databases, where it has none. Nil is an empty
// one.
func withHandles(cfg *config.Config, o *options) *config.Config {
	if cfg == nil {
		cfg = new(config.Config)
	}
	if len(cfg.Databases) > 0 || o.hasTenants(cfg) { // handles may be those of tenants
		return cfg
	}
	whole := *cfg
	whole.Databases = map[string]config.Database{}
	for name, db := range o.handles {
		if db != nil {
			whole.Databases[name] = config.Database{Driver: outbox.Dialect(db.Name()), Notify: db.Name() == string(outbox.Postgres)}
		}
	}
	return &whole
}

// complete is the configuration with what the options say: handles, brokers that are open, and the
// settings of those whose types are linked. It is nil where that makes no valid one.
func complete(cfg *config.Config, o *options) (*config.Config, error) {
	whole := *withHandles(cfg, o)
	problems := o.checkHandles(&whole)
	whole.Brokers = maps.Clone(whole.Brokers)
	if whole.Brokers == nil {
		whole.Brokers = map[string]config.Broker{}
	}
	for name, broker := range o.brokers {
		if broker != nil {
			entry := whole.Brokers[name]
			entry.Settings = given{broker}
			whole.Brokers[name] = entry
		}
	}
	checked, err := whole.Link(append(BrokerTypes(), o.types...)...)
	if err == nil {
		err = checked.Validate()
	}
	if err != nil {
		return nil, errors.Join(problems, fmt.Errorf("fanout: %w", err))
	}
	return checked, problems
}

// notLinked says how to link a client that is in a module of its own: whatever the library's go.mod
// names is in the module graph of every program that uses the library.
func notLinked(brokerType string, o *options) error {
	var names []string
	for _, kind := range append(BrokerTypes(), o.types...) {
		names = append(names, kind.Name)
	}
	return fmt.Errorf("type %q is not linked, only %q: import its adapter, such as github.com/gorm-fanout/fanout/brokers/kafka, and pass its type: "+
		"fanout.WithBrokerType(kafka.Type())", brokerType, names)
}

func policyOf(cfg *config.Config, broker string, o *options) outbox.Policy {
	policy := cfg.Policy(broker)
	if o.workers > 0 {
		policy.Workers = o.workers
	}
	return policy
}

func cleanupConfig(cfg *config.Config, purgers map[string]cleanup.Table, log *slog.Logger) cleanup.Config {
	retentions := make(map[string]cleanup.Retention, len(cfg.Brokers))
	for name := range cfg.Brokers {
		retention := cfg.Retention(name)
		retentions[name] = cleanup.Retention{Published: retention.Published, Abandoned: retention.Abandoned}
	}
	return cleanup.Config{
		Databases: purgers, Interval: cfg.Cleanup.Interval, BatchSize: cfg.Cleanup.BatchSize, MaxLag: cfg.Cleanup.MaxLag, Brokers: retentions, Log: log,
		Retention: cleanup.Retention{Published: cfg.Cleanup.PublishedRetention, Abandoned: cfg.Cleanup.AbandonedRetention},
	}
}
