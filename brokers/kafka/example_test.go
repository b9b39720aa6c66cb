package kafka_test

import (
	"context"
	"fmt"

	"github.com/gorm-fanout/fanout/brokers/kafka"
)

// A cluster whose topics are created where they are missing. Nothing is needed to run this: the broker
// connects when it is used.
func ExampleOpen() {
	broker, err := kafka.Open([]string{"127.0.0.1:1", "127.0.0.1:2"},
		kafka.WithSASLScram512("relay", "secret"),
		kafka.WithCreateTopics(kafka.TopicSettings{Partitions: 12, Replicas: 3}),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer broker.Close(context.Background())

	fmt.Println("keeps the order of a key:", broker.Capabilities().Ordering)
	// Output: keeps the order of a key: true
}
