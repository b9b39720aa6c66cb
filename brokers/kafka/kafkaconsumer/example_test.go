package kafkaconsumer_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gorm-fanout/fanout/brokers/kafka/kafkaconsumer"
	"github.com/gorm-fanout/fanout/inbox"
)

// The handler of most consumers is one that notes each message in the transaction of its effect
// (inbox.NewHandlers). The cluster of this example is one in memory, with a message in a topic.
func ExampleConsumer() {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "ordering.order"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer fake.Close()
	ctx, stop := context.WithCancel(context.Background())
	produce(ctx, fake.ListenAddrs())

	consumer, err := kafkaconsumer.NewConsumer(fake.ListenAddrs(), "billing", []string{"ordering.order"},
		inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
			fmt.Println(m.Consumer, "handles", m.Type, "of", m.OrderingKey)
			stop() // one is enough for an example
			return inbox.Handled, nil
		}), kafkaconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{
			Workers: 20, DeadLetters: func(topic string) string { return topic + ".dead.billing" }, Log: slog.New(slog.DiscardHandler),
		}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("error:", consumer.Run(ctx))
	// Output:
	// billing handles Ordering.OrderPlaced.v1 of order-1
	// error: <nil>
}

func produce(ctx context.Context, servers []string) {
	client, err := kgo.NewClient(kgo.SeedBrokers(servers...), kgo.DisableClientMetrics())
	if err != nil {
		panic(err)
	}
	defer client.Close()
	err = client.ProduceSync(ctx, &kgo.Record{Topic: "ordering.order", Key: []byte("order-1"), Value: []byte(
		`{"specversion":"1.0","id":"1","source":"/ordering","type":"Ordering.OrderPlaced.v1","data":{"id":"1"}}`)}).FirstErr()
	if err != nil {
		panic(err)
	}
}
