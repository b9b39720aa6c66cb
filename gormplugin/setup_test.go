package gormplugin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/glebarez/sqlite"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	pgstore "github.com/gorm-fanout/fanout/outbox/postgres"
	sqlitestore "github.com/gorm-fanout/fanout/outbox/sqlite"
	"github.com/gorm-fanout/fanout/uow"
)

// GORM starts a goroutine for each cache of prepared statements and never ends it.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"))
}

type OrderPlaced struct {
	OrderID string `json:"order_id"`
}

type OrderShipped struct {
	OrderID string `json:"order_id"`
}

type StockReserved struct{ SKU string }

type Unregistered struct{ X int }

type Unencodable struct{ C chan int }

type Order struct {
	ID       string `gorm:"primaryKey"`
	Customer string
	Status   string
	uow.Aggregate

	Lines []Line
}

type Line struct {
	ID      uint `gorm:"primaryKey"`
	OrderID string
	SKU     string
	uow.Aggregate
}

// Account counts its versions; its key is composite.
type Account struct {
	Bank    string `gorm:"primaryKey"`
	Number  int    `gorm:"primaryKey;autoIncrement:false"`
	Version int
	uow.Aggregate
}

type Plain struct {
	ID   uint `gorm:"primaryKey"`
	Name string
}

// bench is one database with the plugin on its handle.
type bench struct {
	t       *testing.T
	db      *gorm.DB
	plugin  *gormplugin.Plugin
	dialect outbox.Dialect
	open    func(config *gorm.Config) *gorm.DB // another handle on the same database, without the plugin
	log     *bytes.Buffer
}

func catalog() *envelope.Catalog {
	events := envelope.NewCatalog("ordering")
	envelope.Register[OrderPlaced](events, envelope.Published())
	envelope.Register[OrderShipped](events)
	envelope.Register[StockReserved](events, envelope.Published())
	envelope.Register[Unencodable](events)
	return events
}

func routing() outbox.Routing {
	return outbox.Routing{External: []outbox.Route{{Broker: "partner"}}}
}

// onEach runs a test on every database that can be had.
func onEach(t *testing.T, test func(b *bench), options ...gormplugin.Option) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "test.db")
		open := func(config *gorm.Config) *gorm.DB {
			return openGORM(t, sqlite.Open(path+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)"), config)
		}
		db := open(&gorm.Config{})
		sqlDB, err := db.DB()
		require.NoError(t, err)
		store, err := sqlitestore.New(sqlDB, "")
		require.NoError(t, err)
		_, err = store.Migrate(t.Context())
		require.NoError(t, err)
		test(newBench(t, db, open, options))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		dsn := testenv.Postgres(t)
		open := func(config *gorm.Config) *gorm.DB { return openGORM(t, postgres.Open(dsn), config) }
		store, err := pgstore.Open(t.Context(), pgstore.Config{DSN: dsn, MaxConns: 1})
		require.NoError(t, err)
		_, err = store.Migrate(t.Context())
		require.NoError(t, err)
		require.NoError(t, store.Close())
		test(newBench(t, open(&gorm.Config{}), open, options))
	})
}

func openGORM(t *testing.T, dialector gorm.Dialector, config *gorm.Config) *gorm.DB {
	t.Helper()
	config.Logger = logger.Discard
	db, err := gorm.Open(dialector, config)
	require.NoError(t, err)
	sqlDB, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { _ = sqlDB.Close() })
	return db
}

func newBench(t *testing.T, db *gorm.DB, open func(*gorm.Config) *gorm.DB, options []gormplugin.Option) *bench {
	t.Helper()
	require.NoError(t, db.AutoMigrate(&Order{}, &Line{}, &Account{}, &Plain{}))
	b := &bench{t: t, db: db, open: open, dialect: outbox.Dialect(db.Name()), log: new(bytes.Buffer)}
	b.plugin = b.use(db, options...)
	return b
}

// use puts a plugin on a handle.
func (b *bench) use(db *gorm.DB, options ...gormplugin.Option) *gormplugin.Plugin {
	b.t.Helper()
	options = append(options, gormplugin.WithLogger(slog.New(slog.NewTextHandler(b.log, nil))))
	plugin := gormplugin.New(catalog(), routing(), options...)
	require.NoError(b.t, db.Use(plugin))
	return plugin
}

// row is what a test looks at.
type row struct {
	MessageID     string
	TargetBroker  string
	Stream        string
	Type          string
	OrderingKey   *string
	AggregateType *string
	AggregateID   *string
	CorrelationID *string
	Payload       []byte
}

func (b *bench) rows() []row {
	b.t.Helper()
	var rows []row
	require.NoError(b.t, b.db.Table("outbox_messages").Order("id").Find(&rows).Error)
	return rows
}

// emitted lists what stands in the outbox, as "OrderPlaced order-1" for internal rows and with ">partner" for others.
func (b *bench) emitted() []string {
	b.t.Helper()
	result := []string{}
	for _, r := range b.rows() {
		name := strings.Split(r.Type, ".")[1]
		if r.AggregateID != nil {
			name += " " + *r.AggregateID
		}
		if r.TargetBroker != "default" {
			name += ">" + r.TargetBroker
		}
		result = append(result, name)
	}
	return result
}

func (b *bench) want(events ...string) {
	b.t.Helper()
	if events == nil {
		events = []string{}
	}
	require.Equal(b.t, events, b.emitted())
}

func (b *bench) orders() int64 {
	b.t.Helper()
	var n int64
	require.NoError(b.t, b.db.Model(&Order{}).Count(&n).Error)
	return n
}

func internalOf(t *testing.T, r row) map[string]any {
	t.Helper()
	var message map[string]any
	require.NoError(t, json.Unmarshal(r.Payload, &message))
	return message
}

func placed(id string) *Order {
	order := &Order{ID: id, Customer: "ada", Status: "placed"}
	order.Raise(OrderPlaced{OrderID: id})
	return order
}

func background() context.Context { return context.Background() }
