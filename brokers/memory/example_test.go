package memory_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/memory"
)

// A test publishes, lets one message fail, and waits for what arrives.
func Example() {
	ctx := context.Background()
	broker := memory.New()
	broker.Fail = func(m brokers.Message) error {
		if m.ID == "2" {
			return brokers.Permanent(errors.New("it is not wanted"))
		}
		return nil
	}
	broker.Publish(ctx, []brokers.Message{
		{ID: "1", Destination: "ordering::order", OrderingKey: "order-1"},
		{ID: "2", Destination: "ordering::order", OrderingKey: "order-1"},
		{ID: "3", Destination: "ordering::order", OrderingKey: "order-1"}, // held back by the one before
		{ID: "4", Destination: "ordering::order", OrderingKey: "order-2"},
	})
	messages, err := broker.Wait(ctx, "ordering::order", 2)
	for _, m := range messages {
		fmt.Println(m.ID, m.OrderingKey)
	}
	fmt.Println(err)
	// Output:
	// 1 order-1
	// 4 order-2
	// <nil>
}
