package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// The events of the shop. Partners get the first two.
type (
	OrderPlaced struct {
		OrderID, Customer string
		TotalCents        int64
	}
	OrderShipped  struct{ OrderID, Parcel string }
	StockReserved struct {
		OrderID, SKU string
		Quantity     int64
	}
)

// Order is an aggregate.
type Order struct {
	ID         string `gorm:"primaryKey"`
	Customer   string
	Status     string
	TotalCents int64
	Quantity   int64
	uow.Aggregate
}

// shop is the ordering service.
type shop struct {
	db     *gorm.DB
	placed atomic.Int64
}

func openShop(db *gorm.DB, routing outbox.Routing) (*shop, error) {
	if err := db.AutoMigrate(&Order{}); err != nil {
		return nil, err
	}
	events := envelope.NewCatalog("ordering")
	envelope.Register[OrderPlaced](events, envelope.Published())
	envelope.Register[OrderShipped](events, envelope.Published())
	envelope.Register[StockReserved](events) // internal
	return &shop{db: db}, db.Use(gormplugin.New(events, routing))
}

var errChangedMind = errors.New("the customer has changed their mind")

// tradePause is the time between two customers.
const tradePause = 2500 * time.Microsecond

// trade places orders and ships every second one. Every tenth time a customer backs out at the last
// moment: the transaction rolls back, and that order must not reach any broker.
func (s *shop) trade(ctx context.Context, orders int) error {
	pause := time.NewTicker(tradePause)
	defer pause.Stop()
	for n := range orders {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if n%10 == 9 {
			if err := s.place(ctx, "ghost", 1000, errChangedMind); !errors.Is(err, errChangedMind) {
				return fmt.Errorf("place an order that is withdrawn: %w", err)
			}
		}
		id := strconv.Itoa(n + 1)
		if err := s.place(ctx, id, int64(n%3+1), nil); err != nil {
			return fmt.Errorf("place order %s: %w", id, err)
		}
		if n%2 == 1 {
			if err := s.ship(ctx, id); err != nil {
				return fmt.Errorf("ship order %s: %w", id, err)
			}
		}
		s.placed.Add(1)
	}
	return nil
}

const teapotCents = 4990

// place is plain GORM: the order and its events are one transaction.
func (s *shop) place(ctx context.Context, id string, teapots int64, withdraw error) error {
	ctx = envelope.WithCorrelationID(ctx, "checkout-"+id)
	return s.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		order := &Order{ID: id, Customer: "ada", Status: "placed", TotalCents: teapots * teapotCents, Quantity: teapots}
		order.Raise(OrderPlaced{OrderID: id, Customer: order.Customer, TotalCents: order.TotalCents})
		order.Raise(StockReserved{OrderID: id, SKU: "teapot", Quantity: order.Quantity})
		if err := tx.Create(order).Error; err != nil {
			return err
		}
		return withdraw
	})
}

func (s *shop) ship(ctx context.Context, id string) error {
	var order Order
	if err := s.db.WithContext(ctx).First(&order, "id = ?", id).Error; err != nil {
		return err
	}
	order.Status = "shipped"
	order.Raise(OrderShipped{OrderID: id, Parcel: "parcel-" + id})
	return s.db.WithContext(ctx).Save(&order).Error
}

// row is one committed row of the outbox.
type row struct {
	MessageID    string
	TargetBroker string
	Status       outbox.Status
}

func (s *shop) rows(ctx context.Context) ([]row, error) {
	var rows []row
	if err := s.db.WithContext(ctx).Table(outbox.DefaultTable).Order("id").Find(&rows).Error; err != nil {
		return nil, fmt.Errorf("read the outbox: %w", err)
	}
	return rows, nil
}
