package kafka_test

import (
	"context"
	"fmt"

	"github.com/gorm-fanout/fanout/brokers/kafka"
)

// A cluster whose topics are created where they are missing. Nothing is needed to run this: the broker
// connects when it is used.
func ExampleOpen() {
	broker, err := kafka.Open(kafka.Settings{
		BootstrapServers: "127.0.0.1:1,127.0.0.1:2", CreateDestinations: true, Topics: kafka.TopicSettings{Partitions: 12, Replicas: 3},
		SASL: kafka.SASL{Mechanism: "SCRAM-SHA-512", Username: "relay", Password: "secret"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer broker.Close(context.Background())

	fmt.Println("keeps the order of a key:", broker.Capabilities().Ordering)
	// Output: keeps the order of a key: true
}
