package rabbitmq_test

import (
	"context"
	"fmt"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/rabbitmq"
)

// Queues can be bound by destination and type ("ordering::order.#"), and messages that were not
// taken for a week expire. Nothing is connected before it is needed.
func ExampleOpen() {
	broker, err := rabbitmq.Open(rabbitmq.Settings{
		URL: "amqps://user:password@rabbit.internal/orders", Exchange: "events", Expiration: 7 * 24 * time.Hour,
		RoutingKey: func(m *brokers.Message) string { return m.Destination + "." + m.Type },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer broker.Close(context.Background())

	fmt.Println("keeps the order of a key:", broker.Capabilities().Ordering)
	// Output: keeps the order of a key: true
}
