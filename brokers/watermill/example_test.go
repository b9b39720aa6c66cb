package watermill_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/watermill"
)

// Any publisher of Watermill will do; this one stays in the process.
func Example() {
	ctx := context.Background()
	pubsub := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	arriving, err := pubsub.Subscribe(ctx, "ordering.order")
	if err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for m := range arriving {
			fmt.Println(m.UUID, m.Metadata.Get("type"), m.Metadata.Get("ordering_key"), string(m.Payload))
			m.Ack()
		}
	}()

	broker := watermill.New(pubsub, watermill.WithTopic(func(m brokers.Message) string {
		return strings.ReplaceAll(m.Destination, "::", ".")
	}))
	// A relay does this: fanout.Open(ctx, cfg, fanout.WithBroker("partner", broker)).
	for _, result := range broker.Publish(ctx, []brokers.Message{
		{ID: "1", Destination: "ordering::order", Type: "Ordering.OrderPlaced.v1", OrderingKey: "order-42", Payload: []byte(`{"placed": true}`)},
		{ID: "2", Destination: "ordering::order", Type: "Ordering.OrderPaid.v1", OrderingKey: "order-42", Payload: []byte(`{"paid": true}`)},
	}) {
		if result.Err != nil {
			fmt.Println(result.Err)
		}
	}
	if err := broker.Close(ctx); err != nil { // closes the publisher, too
		fmt.Println(err)
	}
	<-done

	// Output:
	// 1 Ordering.OrderPlaced.v1 order-42 {"placed": true}
	// 2 Ordering.OrderPaid.v1 order-42 {"paid": true}
}
