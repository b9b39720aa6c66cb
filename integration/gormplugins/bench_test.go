package gormplugins_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/driver/sqlserver"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/schema"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	mysqlstore "github.com/gorm-fanout/fanout/outbox/mysql"
	pgstore "github.com/gorm-fanout/fanout/outbox/postgres"
	sqlitestore "github.com/gorm-fanout/fanout/outbox/sqlite"
	mssqlstore "github.com/gorm-fanout/fanout/outbox/sqlserver"
	"github.com/gorm-fanout/fanout/uow"
)

// GORM starts a goroutine for each cache of prepared statements and never ends it, as its plugin for
// Prometheus does for each handle.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"),
		goleak.IgnoreAnyFunction("gorm.io/plugin/prometheus.(*Prometheus).Initialize.func1.1"))
}

var errRefused = errors.New("refused")

// Happened is the only event; What tells one from another.
type Happened struct {
	What string `json:"what"`
}

type Order struct {
	ID     string `gorm:"primaryKey;size:64"`
	Status string
	uow.Aggregate
}

type Plain struct {
	ID uint `gorm:"primaryKey"`
}

type Buyer struct {
	ID   string `gorm:"primaryKey;size:64"`
	Card *Card
	uow.Aggregate
}

type Card struct {
	ID      string  `gorm:"primaryKey;size:64"`
	BuyerID *string `gorm:"size:64"`
	uow.Aggregate
}

// Hooked calls Act when it was saved.
type Hooked struct {
	ID  string                  `gorm:"primaryKey;size:64"`
	Act func(tx *gorm.DB) error `gorm:"-"`
	uow.Aggregate
}

func (h *Hooked) AfterSave(tx *gorm.DB) error { return h.Act(tx) }

// raising lets an aggregate raise a Happened for each word.
func raising[R interface {
	Raise(event any, opts ...envelope.Option)
}](root R, what ...string) R {
	for _, w := range what {
		root.Raise(Happened{w})
	}
	return root
}

func order(id string, what ...string) *Order { return raising(&Order{ID: id}, what...) }

// bench is an outbox and the tables of the models, with a prefix of their own in the database.
type bench struct {
	t      *testing.T
	prefix string
	dial   func(readOnly bool) gorm.Dialector
	db     *gorm.DB // without any plugin
	pools  []*sql.DB
}

type migrator interface {
	Migrate(ctx context.Context) ([]string, error)
}

// runCases runs each case on every database that can be had. No case leaves a connection in use.
func runCases(t *testing.T, cases map[string]func(b *bench)) {
	t.Helper()
	for name, start := range map[outbox.Dialect]func(t *testing.T) func(t *testing.T) *bench{
		outbox.SQLite: startSQLite, outbox.Postgres: startPostgres, outbox.MySQL: startMySQL, outbox.SQLServer: startSQLServer,
	} {
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()
			settle := start(t)
			for name, test := range cases {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					b := settle(t)
					test(b)
					for _, pool := range b.pools {
						assert.Eventually(t, func() bool { return pool.Stats().InUse == 0 }, 30*time.Second, time.Millisecond, "a connection stays in use")
					}
				})
			}
		})
	}
}

func startSQLite(*testing.T) func(t *testing.T) *bench {
	return func(t *testing.T) *bench {
		t.Helper()
		path := filepath.Join(t.TempDir(), "test.db")
		b := &bench{t: t, prefix: "shop_", dial: func(readOnly bool) gorm.Dialector {
			dsn := path + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"
			if readOnly {
				dsn += "&_pragma=query_only(1)"
			}
			return sqlite.Open(dsn)
		}}
		b.migrate(func(db *sql.DB) (migrator, error) { return sqlitestore.New(db, b.outbox()) })
		return b
	}
}

func startPostgres(t *testing.T) func(t *testing.T) *bench {
	t.Helper()
	dsn := testenv.Postgres(t)
	var n atomic.Int32
	return func(t *testing.T) *bench {
		t.Helper()
		b := &bench{t: t, prefix: fmt.Sprintf("c%d_", n.Add(1)), dial: func(readOnly bool) gorm.Dialector {
			if readOnly {
				return postgres.Open(dsn + "&default_transaction_read_only=on")
			}
			return postgres.Open(dsn)
		}}
		store, err := pgstore.Open(t.Context(), dsn, b.outbox(), pgstore.WithMaxConns(1))
		require.NoError(t, err)
		defer func() { require.NoError(t, store.Close()) }()
		b.migrate(func(*sql.DB) (migrator, error) { return store, nil })
		return b
	}
}

func startMySQL(t *testing.T) func(t *testing.T) *bench {
	t.Helper()
	dsn := testenv.MySQL(t) + "?parseTime=true"
	server, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	defer server.Close()
	var readOnlyVariable string // MariaDB has the other name since 11.1 only, MySQL has dropped the old one
	require.NoError(t, server.QueryRowContext(t.Context(), "SELECT IF(VERSION() LIKE '%MariaDB%', 'tx_read_only', 'transaction_read_only')").Scan(&readOnlyVariable))
	var n atomic.Int32
	return func(t *testing.T) *bench {
		t.Helper()
		b := &bench{t: t, prefix: fmt.Sprintf("c%d_", n.Add(1)), dial: func(readOnly bool) gorm.Dialector {
			if readOnly {
				return mysql.Open(dsn + "&" + readOnlyVariable + "=1")
			}
			return mysql.Open(dsn)
		}}
		b.migrate(func(db *sql.DB) (migrator, error) { return mysqlstore.New(db, b.outbox()) })
		return b
	}
}

func startSQLServer(t *testing.T) func(t *testing.T) *bench {
	t.Helper()
	dsn := testenv.SQLServer(t)
	return func(t *testing.T) *bench {
		t.Helper()
		b := &bench{
			t: t, prefix: "fanout_test_" + strings.ToLower(rand.Text()[:8]) + "_",
			dial: func(bool) gorm.Dialector { return sqlserver.Open(dsn) },
		}
		b.migrate(func(db *sql.DB) (migrator, error) { return mssqlstore.New(db, b.outbox()) })
		t.Cleanup(func() { // the server is shared by many tests
			db, err := gorm.Open(b.dial(false), &gorm.Config{Logger: logger.Discard})
			require.NoError(t, err)
			pool, err := db.DB()
			require.NoError(t, err)
			defer pool.Close()
			var tables []string
			require.NoError(t, db.Raw("SELECT name FROM sys.tables WHERE LEFT(name, ?) = ?", len(b.prefix), b.prefix).Scan(&tables).Error)
			for _, table := range tables {
				assert.NoError(t, db.Exec("DROP TABLE "+table).Error)
			}
		})
		return b
	}
}

// migrate makes the tables.
func (b *bench) migrate(store func(*sql.DB) (migrator, error)) {
	b.t.Helper()
	b.db = b.open(&gorm.Config{})
	m, err := store(b.pools[0])
	require.NoError(b.t, err)
	_, err = m.Migrate(b.t.Context())
	require.NoError(b.t, err)
	b.ok(b.db.Transaction(func(tx *gorm.DB) error { // one wait for the disk
		return tx.Migrator().CreateTable(&Order{}, &Plain{}, &Buyer{}, &Card{}, &Hooked{}, &Locked{}, &Kept{})
	}))
}

func (b *bench) outbox() string { return b.prefix + "outbox_messages" }

// open opens another handle on the same tables, without any plugin.
func (b *bench) open(config *gorm.Config) *gorm.DB {
	b.t.Helper()
	config.Logger = logger.Discard
	config.NamingStrategy = schema.NamingStrategy{TablePrefix: b.prefix}
	config.DisableForeignKeyConstraintWhenMigrating = true // so that tables go in any order
	db, err := gorm.Open(b.dial(false), config)
	require.NoError(b.t, err)
	pool, err := db.DB()
	require.NoError(b.t, err)
	b.pools = append(b.pools, pool)
	b.t.Cleanup(func() { _ = pool.Close() })
	return db
}

// use puts the plugin of the outbox on a handle.
func (b *bench) use(db *gorm.DB) {
	b.t.Helper()
	events := envelope.NewCatalog("ordering")
	envelope.Register[Happened](events)
	b.ok(db.Use(gormplugin.New(events, outbox.Routing{Table: b.outbox()})))
}

func (b *bench) ok(err error) {
	b.t.Helper()
	require.NoError(b.t, err)
}

// stored writes an order without events and then lets it raise some.
func (b *bench) stored(id string, what ...string) *Order {
	b.t.Helper()
	o := order(id)
	b.ok(b.db.Create(o).Error)
	return raising(o, what...)
}

// want compares the outbox with a list such as "1: shipped" for an event of aggregate 1 and ":
// shipped" for one of none.
func (b *bench) want(events ...string) {
	b.t.Helper()
	var (
		rows []struct {
			AggregateID string
			Payload     []byte
		}
		emitted []string
	)
	b.ok(b.db.Table(b.outbox()).Select("COALESCE(aggregate_id, '') AS aggregate_id, payload").Order("id").Find(&rows).Error)
	for _, row := range rows {
		var message struct{ Data Happened }
		b.ok(json.Unmarshal(row.Payload, &message))
		emitted = append(emitted, row.AggregateID+": "+message.Data.What)
	}
	require.Equal(b.t, events, emitted)
}

// pending wants these events, and nothing else, to be pending on an order.
func (b *bench) pending(o *Order, what ...string) {
	b.t.Helper()
	events := []any{}
	for _, w := range what {
		events = append(events, Happened{w})
	}
	require.Equal(b.t, events, uow.Pending(o))
}

// scenario is what every kind of handle must get right: plain writes, a transaction with a
// savepoint that is rolled back, a late event, an event without an aggregate, and a transaction
// that fails.
func (b *bench) scenario(db *gorm.DB) {
	b.t.Helper()
	late, saved, undone, refused := order("3"), order("2", "b"), order("4", "undone"), order("5", "refused")
	b.ok(db.Create(order("1", "a")).Error)
	b.ok(db.Save(saved).Error)
	b.ok(db.Transaction(func(tx *gorm.DB) error {
		b.ok(tx.Create(late).Error)
		b.ok(uow.Publish(tx, Happened{"c"}))
		require.ErrorIs(b.t, tx.Transaction(func(tx *gorm.DB) error {
			b.ok(tx.Create(undone).Error)
			return errRefused
		}), errRefused)
		raising(late, "d")
		return nil
	}))
	require.ErrorIs(b.t, db.Transaction(func(tx *gorm.DB) error {
		b.ok(tx.Create(refused).Error)
		return errRefused
	}), errRefused)
	b.ok(db.Delete(raising(saved, "e")).Error)
	b.want("1: a", "2: b", ": c", "3: d", "2: e")
	b.pending(late)
	b.pending(undone, "undone")
	b.pending(refused, "refused")
	b.pending(saved)
	var orders int64
	b.ok(b.db.Model(&Order{}).Count(&orders).Error)
	assert.EqualValues(b.t, 2, orders)
}
