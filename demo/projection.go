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

// A Projection is the sums that a consumer makes of the shop's events. Each event that was handled
// twice, or never, shows in them.
type Projection struct {
	OrdersPlaced  int64 `json:"orders_placed"`
	RevenueCents  int64 `json:"revenue_cents"`
	OrdersShipped int64 `json:"orders_shipped"`
	StockReserved int64 `json:"stock_reserved"`
}

// sums is the row of a consumer, which has the name of its broker.
type sums struct {
	Consumer   string `gorm:"primaryKey"`
	Projection `gorm:"embedded"`
}

// openDB opens a database of SQLite, for several connections.
func openDB(path string) (*gorm.DB, error) {
	dsn := path + "?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=busy_timeout(60000)"
	return gorm.Open(sqlite.Open(dsn), &gorm.Config{Logger: logger.Discard})
}

func closeDB(db *gorm.DB) error {
	pool, err := db.DB()
	if err != nil {
		return err
	}
	return pool.Close()
}

// openProjections opens the consumers' database, and makes its tables: the inbox, and the sums.
func openProjections(ctx context.Context, path string) (*gorm.DB, error) {
	db, err := openDB(path)
	if err != nil {
		return nil, fmt.Errorf("open the consumer's database: %w", err)
	}
	pool, err := db.DB()
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(1) // SQLite has one writer: handlers wait for it here, not in the database
	if _, err := inbox.Migrate(ctx, db); err != nil {
		return nil, err
	}
	return db, db.WithContext(ctx).AutoMigrate(&sums{})
}

// projectionHandlers are the handlers of both consumers. Each function runs in the transaction in
// which the inbox notes the message.
func projectionHandlers(db *gorm.DB) *inbox.Handlers {
	handlers := inbox.NewHandlers(db)
	inbox.On(handlers, "Ordering.OrderPlaced.v1", func(tx *gorm.DB, e OrderPlaced, m *inbox.Message) error {
		return add(tx, m.Consumer, Projection{OrdersPlaced: 1, RevenueCents: e.TotalCents})
	})
	inbox.On(handlers, "Ordering.OrderShipped.v1", func(tx *gorm.DB, _ OrderShipped, m *inbox.Message) error {
		return add(tx, m.Consumer, Projection{OrdersShipped: 1})
	})
	inbox.On(handlers, "Ordering.StockReserved.v1", func(tx *gorm.DB, e StockReserved, m *inbox.Message) error {
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

// expected are the sums of each consumer by the shop's tables: the partner gets no events about the
// stock, the carrier only shipments.
func (s *shop) expected(ctx context.Context) (map[string]Projection, error) {
	var all Projection
	if err := s.db.WithContext(ctx).Raw(expectedSQL).Scan(&all).Error; err != nil {
		return nil, fmt.Errorf("add up the shop's orders: %w", err)
	}
	published := all
	published.StockReserved = 0
	return map[string]Projection{"default": all, "partner": published, "carrier": {OrdersShipped: all.OrdersShipped}}, nil
}

// projected are the consumers' sums; their process must have ended.
func projected(ctx context.Context, path string) (map[string]Projection, error) {
	db, err := openProjections(ctx, path)
	if err != nil {
		return nil, err
	}
	var rows []sums
	if err := errors.Join(db.WithContext(ctx).Find(&rows).Error, closeDB(db)); err != nil {
		return nil, fmt.Errorf("read the projections: %w", err)
	}
	all := map[string]Projection{}
	for _, row := range rows {
		all[row.Consumer] = row.Projection
	}
	return all, nil
}
