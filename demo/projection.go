package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/glebarez/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout/inbox"
)

// The consumers, which see the shop from inside the company and from outside. Each is a name in the
// inbox, and has sums of its own.
const (
	warehouse = "warehouse" // reads the internal broker: every event
	partner   = "partner"   // reads the partner's broker: published events
)

// A Projection is what a consumer has made of the shop's events: sums, in which each event that was
// handled twice, or never, shows.
type Projection struct {
	OrdersPlaced  int64 `json:"orders_placed"`
	RevenueCents  int64 `json:"revenue_cents"`
	OrdersShipped int64 `json:"orders_shipped"`
	StockReserved int64 `json:"stock_reserved"`
}

// row of a consumer's sums in its database.
type sums struct {
	Consumer   string `gorm:"primaryKey"`
	Projection `gorm:"embedded"`
}

// TableName implements GORM's Tabler.
func (sums) TableName() string { return "projections" }

// openProjections opens the consumers' database, which is not the shop's.
func openProjections(path string) (*gorm.DB, error) {
	db, err := gorm.Open(sqlite.Open(path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=busy_timeout(10000)"), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		return nil, fmt.Errorf("open the consumer's database: %w", err)
	}
	pool, err := db.DB()
	if err != nil {
		return nil, fmt.Errorf("open the consumer's database: %w", err)
	}
	pool.SetMaxOpenConns(1) // SQLite has one writer: handlers wait for it here, not in the database
	return db, nil
}

func closeProjections(db *gorm.DB) error {
	pool, err := db.DB()
	if err != nil {
		return err
	}
	return pool.Close()
}

// createProjections makes the tables: the inbox, and the sums.
func createProjections(ctx context.Context, db *gorm.DB) error {
	if _, err := inbox.Migrate(ctx, db); err != nil {
		return err
	}
	return db.WithContext(ctx).AutoMigrate(&sums{})
}

// The consumers' own view of the events: the same JSON, no code of the shop's.
type (
	placed   struct{ TotalCents int64 }
	shipped  struct{}
	reserved struct{ Quantity int64 }
)

// projectionHandlers are the handlers of both consumers. Each function runs in the transaction that
// notes the message.
func projectionHandlers(db *gorm.DB) *inbox.Handlers {
	handlers := inbox.NewHandlers(db)
	inbox.On(handlers, "Ordering.OrderPlaced.v1", func(tx *gorm.DB, e placed, m *inbox.Message) error {
		return add(tx, m.Consumer, Projection{OrdersPlaced: 1, RevenueCents: e.TotalCents})
	})
	inbox.On(handlers, "Ordering.OrderShipped.v1", func(tx *gorm.DB, _ shipped, m *inbox.Message) error {
		return add(tx, m.Consumer, Projection{OrdersShipped: 1})
	})
	inbox.On(handlers, "Ordering.StockReserved.v1", func(tx *gorm.DB, e reserved, m *inbox.Message) error {
		return add(tx, m.Consumer, Projection{StockReserved: e.Quantity})
	})
	return handlers
}

//go:embed sql/add.sql
var addSQL string

func add(tx *gorm.DB, consumer string, more Projection) error {
	return tx.Exec(addSQL, consumer, more.OrdersPlaced, more.RevenueCents, more.OrdersShipped, more.StockReserved).Error
}

//go:embed sql/expected.sql
var expectedSQL string

// expected are the sums of both consumers by the shop's own tables. The partner never hears of the
// stock.
func (s *shop) expected(ctx context.Context) (map[string]Projection, error) {
	var inside Projection
	if err := s.db.WithContext(ctx).Raw(expectedSQL).Scan(&inside).Error; err != nil {
		return nil, fmt.Errorf("add up the shop's orders: %w", err)
	}
	outside := inside
	outside.StockReserved = 0
	return map[string]Projection{warehouse: inside, partner: outside}, nil
}

// projected are the sums that the consumers have arrived at; their process must have ended.
func projected(ctx context.Context, path string) (_ map[string]Projection, err error) {
	db, err := openProjections(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeProjections(db)) }()
	var rows []sums
	if err := db.WithContext(ctx).Find(&rows).Error; err != nil {
		return nil, fmt.Errorf("read the projections: %w", err)
	}
	all := map[string]Projection{}
	for _, row := range rows {
		all[row.Consumer] = row.Projection
	}
	return all, nil
}
