package examples_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/gorm-fanout/fanout/brokers/redisstreams/redisconsumer"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/telemetry/otelinbox"
)

// A consumer of Redis Streams that is measured, with its lag.
func Example_telemetry() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		panic(err)
	}
	defer server.Close()
	if _, err := server.XAdd("orders", "*", []string{"data", `{"specversion":"1.0","id":"1","source":"/shop","type":"OrderPlaced"}`}); err != nil {
		panic(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	handler := inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
		fmt.Println("handled:", m.Type)
		stop()
		return inbox.Handled, nil
	})

	observer, err := otelinbox.New(otelinbox.Config{MeterProvider: sdk.NewMeterProvider()}) // with a reader of your choice
	if err != nil {
		panic(err)
	}
	consumer, err := redisconsumer.NewConsumer(client, "billing", []string{"orders"}, handler,
		redisconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{Observer: observer}})
	if err != nil {
		panic(err)
	}
	if _, err := observer.WatchLag("billing", consumer.Lag); err != nil {
		panic(err)
	}
	if err := consumer.Run(ctx); err != nil {
		panic(err)
	}
	lags, err := consumer.Lag(context.Background())
	fmt.Println("waiting:", lags[0].Waiting, "pending:", lags[0].Pending, err)
	// Output:
	// handled: OrderPlaced
	// waiting: 0 pending: 0 <nil>
}
