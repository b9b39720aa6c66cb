package gcppubsub_test

import (
	"context"
	"fmt"

	"cloud.google.com/go/pubsub/v2/pstest"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/gcppubsub"
)

// In production, leave the emulator and the creation of topics out, and pin the region where order
// matters.
func ExampleOpen() {
	ctx := context.Background()
	emulator := pstest.NewServer()
	defer func() { _ = emulator.Close() }()

	broker, err := gcppubsub.Open(ctx, gcppubsub.Settings{
		Project: "acme-production", Compression: 1024, CreateDestinations: true,
		Endpoint: emulator.Addr, // "europe-west1-pubsub.googleapis.com:443"
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	results := broker.Publish(ctx, []brokers.Message{{
		ID: "0198c5f0-0000-7000-8000-000000000001", Destination: "ordering::order", Type: "Ordering.OrderPlaced.v1",
		OrderingKey: "ordering::order-1", Payload: []byte(`{}`),
	}})
	fmt.Println("error:", results[0].Err)
	for _, m := range emulator.Messages() {
		fmt.Println(m.Topic, m.OrderingKey, m.Attributes["type"])
	}
	if err := broker.Close(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// error: <nil>
	// projects/acme-production/topics/ordering.order ordering::order-1 Ordering.OrderPlaced.v1
}
