package nats_test

import (
	"context"
	"fmt"
	"time"

	"github.com/gorm-fanout/fanout/brokers/nats"
)

// A cluster of three, whose streams are created where they are missing. Nothing is needed to run this:
// while no server is there, the broker goes on trying to connect.
func ExampleOpen() {
	broker, err := nats.Open(nats.Settings{
		URL: "nats://127.0.0.1:1,nats://127.0.0.1:2,nats://127.0.0.1:3", SubjectPrefix: "events.",
		CreateDestinations: true, Stream: nats.StreamSettings{Replicas: 3, MaxAge: 30 * 24 * time.Hour},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer broker.Close(context.Background())

	fmt.Println("keeps the order of a key:", broker.Capabilities().Ordering)
	// Output: keeps the order of a key: true
}
