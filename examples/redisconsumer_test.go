package examples_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/brokers"
	publisher "github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/brokers/redisstreams/redisconsumer"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
)

// A relay has published two events of one order; the consumer handles them in order. (The handler
// of an application is mostly one of inbox.NewHandlers, which makes of this processing exactly
// once.)
func Example_redisConsumer() {
	server, err := miniredis.Run() // in real life a server of its own
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	type OrderPlaced struct{ Total int }
	events := envelope.NewCatalog("ordering")
	envelope.Register[OrderPlaced](events)
	broker := publisher.New(client, publisher.Settings{})
	for _, total := range []int{10, 32} {
		m, err := events.Seal(envelope.NewEvent(OrderPlaced{total}), envelope.Source{Aggregate: "Order", ID: "42"}, envelope.Context{})
		if err != nil {
			panic(err)
		}
		payload, err := m.MarshalInternal()
		if err != nil {
			panic(err)
		}
		broker.Publish(context.Background(), []brokers.Message{{
			Destination: "ordering::order", ID: m.Metadata.Headers.ID.String(), Type: m.Metadata.Headers.Type, OrderingKey: m.Metadata.Headers.Stream, Payload: payload,
		}})
	}

	ctx, stop := context.WithCancel(context.Background())
	sum := 0
	handler := inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
		event, err := envelope.DataAs[OrderPlaced](m.Envelope.Data)
		if err != nil {
			return "", inbox.Permanent(err)
		}
		sum += event.Total
		fmt.Println(m.Type, m.OrderingKey, sum)
		if sum == 42 {
			stop()
		}
		return inbox.Handled, nil
	})
	consumer, err := redisconsumer.NewConsumer(client, "billing", []string{"ordering::order"}, handler, redisconsumer.Config{})
	if err != nil {
		panic(err)
	}
	if err := consumer.Run(ctx); err != nil {
		panic(err)
	}
	// Output:
	// Ordering.OrderPlaced.v1 ordering::order-42 10
	// Ordering.OrderPlaced.v1 ordering::order-42 42
}
