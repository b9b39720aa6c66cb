package rabbitmqconsumer_test

import (
	"context"
	"fmt"

	"github.com/gorm-fanout/fanout/brokers/rabbitmq/rabbitmqconsumer"
	"github.com/gorm-fanout/fanout/inbox"
)

// The handler of most consumers is one that notes each message in the transaction of its effect
// (inbox.NewHandlers). All that is wrong with a consumer is said when it is made.
func ExampleNewConsumer() {
	handler := inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
		fmt.Println(m.Consumer, "handles", m.Type, "of", m.OrderingKey)
		return inbox.Handled, nil
	})
	_, err := rabbitmqconsumer.NewConsumer("amqp://user:password@rabbit.internal/orders", "billing", handler,
		rabbitmqconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{Workers: 20, DeadLetters: inbox.Always("billing-dead")}})
	fmt.Println(err)
	_, err = rabbitmqconsumer.NewConsumer("amqp://rabbit.internal", "billing", handler,
		rabbitmqconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{MaxOutstandingMessages: 100_000}})
	fmt.Println(err)
	// Output:
	// <nil>
	// rabbitmqconsumer: MaxOutstandingMessages is 100000: give 1 to 65535
}
