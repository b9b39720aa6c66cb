package pubsubconsumer_test

import (
	"context"
	"fmt"
	"log/slog"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/gorm-fanout/fanout/brokers/gcppubsub/pubsubconsumer"
	"github.com/gorm-fanout/fanout/inbox"
)

// In production the client is made without options, or with brokers/gcppubsub.ClientOptions, and
// the handler is one that notes each message in the transaction of its effect.
func ExampleConsumer() {
	ctx, stop := context.WithCancel(context.Background())
	client, closeAll := emulated(ctx)
	defer closeAll()

	consumer, err := pubsubconsumer.NewConsumer(client, "orders-billing",
		inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
			fmt.Println(m.Consumer, "handles", m.Type, "of", m.OrderingKey)
			stop() // one is enough for an example
			return inbox.Handled, nil
		}),
		pubsubconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{Workers: 20, DeadLetters: inbox.Always("orders-billing-dead"), Log: slog.New(slog.DiscardHandler)}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("error:", consumer.Run(ctx))
	fmt.Println("handled:", consumer.Stats().Handled)
	// Output:
	// orders-billing handles Ordering.OrderPlaced.v1 of ordering::order-1
	// error: <nil>
	// handled: 1
}

// emulated is a client of a fake Pub/Sub with one message in its subscription.
func emulated(ctx context.Context) (client *pubsub.Client, closeAll func()) {
	emulator := pstest.NewServer()
	client, err := pubsub.NewClient(ctx, "acme", option.WithEndpoint(emulator.Addr), option.WithoutAuthentication(),
		option.WithTelemetryDisabled(), option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	if err != nil {
		panic(err)
	}
	const topic = "projects/acme/topics/ordering.order"
	if _, err := emulator.GServer.CreateTopic(ctx, &pubsubpb.Topic{Name: topic}); err != nil {
		panic(err)
	}
	if _, err := emulator.GServer.CreateSubscription(ctx, &pubsubpb.Subscription{
		Name: "projects/acme/subscriptions/orders-billing", Topic: topic, EnableMessageOrdering: true,
	}); err != nil {
		panic(err)
	}
	emulator.PublishOrdered(topic, []byte(`{"specversion": "1.0", "id": "0198c5f0-0000-7000-8000-000000000001", "source": "/ordering",
		"type": "Ordering.OrderPlaced.v1", "partitionkey": "ordering::order-1", "data": {}}`), nil, "ordering::order-1")
	return client, func() {
		_ = client.Close()
		_ = emulator.Close()
	}
}
