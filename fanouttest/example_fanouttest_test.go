package fanouttest_test

import (
	"fmt"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/fanouttest"
	"github.com/gorm-fanout/fanout/uow"
)

// Ship is the code under test.
func Ship(tx *gorm.DB, order *Order) error {
	order.Status = "shipped"
	order.Raise(OrderShipped{order.ID})
	if err := tx.Save(order).Error; err != nil {
		return err
	}
	return uow.Publish(tx, StockReserved{"teapot"})
}

// In a test there is a *testing.T, and InExample is not needed.
func ExampleEmits() {
	fanouttest.InExample(func(t fanouttest.TB) {
		db := fanouttest.Open(t, catalog(), &Order{})
		events := fanouttest.Emits(t, db, func(tx *gorm.DB) error {
			return Ship(tx, &Order{ID: "42"})
		})
		for _, event := range events {
			fmt.Println(event)
		}
		fmt.Println(fanouttest.Data(events)...)
	})
	// Output:
	// Ordering.OrderShipped.v1 by Order 42 to default
	// Ordering.StockReserved.v1 to default
	// {42} {teapot}
}

// A test that works in one transaction, which it rolls back in the end.
func ExampleWouldEmit() {
	fanouttest.InExample(func(t fanouttest.TB) {
		tx := fanouttest.Open(t, catalog(), &Order{}).Begin()
		defer tx.Rollback()
		if err := Ship(tx, &Order{ID: "42"}); err != nil {
			t.Fatalf("ship: %v", err)
		}
		events := fanouttest.WouldEmit(t, tx)
		fmt.Println(len(events), fanouttest.Of[OrderShipped](events))
	})
	// Output: 2 [{42}]
}

// What a partner gets of an event, and what not.
func ExampleEvent_Message() {
	fanouttest.InExample(func(t fanouttest.TB) {
		ctx := envelope.WithPriority(envelope.WithCorrelationID(background(), "checkout-7"), envelope.PriorityHigh)
		db := fanouttest.Open(t, catalog(), &Order{}).WithContext(ctx)
		event := fanouttest.Emits(t, db, func(tx *gorm.DB) error {
			order := &Order{ID: "42"}
			order.Raise(OrderPlaced{order.ID})
			return tx.Create(order).Error
		})[0]
		for _, broker := range []string{"default", "partner"} {
			domain := event.Message(broker).Metadata.Domain
			fmt.Printf("%s: correlation %s, priority %d\n", broker, domain.CorrelationID, domain.Priority)
		}
	})
	// Output:
	// default: correlation checkout-7, priority 50
	// partner: correlation checkout-7, priority 0
}

// Which events an aggregate has raised needs no database.
func Example_pending() {
	order := &Order{ID: "42"}
	order.Raise(OrderPlaced{order.ID})
	fmt.Println(uow.Pending(order)...)
	// Output: {42}
}
