package telemetry_test

import (
	"context"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/redisstreams"
	"github.com/gorm-fanout/fanout/inbox/telemetry"
)

// A consumer of Redis Streams that is measured and traced, with its lag.
func Example() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer client.Close()
	handlers := inbox.HandlerFunc(func(context.Context, *inbox.Message) (inbox.Outcome, error) { return inbox.Handled, nil })

	observer, err := telemetry.New(telemetry.Config{MeterProvider: otel.GetMeterProvider(), TracerProvider: otel.GetTracerProvider()})
	if err != nil {
		panic(err)
	}
	consumer, err := redisstreams.NewConsumer(client, "billing", []string{"ordering::order"}, handlers, redisstreams.WithObserver(observer))
	if err != nil {
		panic(err)
	}
	stop, err := observer.WatchLag("billing", func(ctx context.Context) ([]telemetry.Lag, error) {
		streams, err := consumer.Stats(ctx)
		if err != nil {
			return nil, err
		}
		var lags []telemetry.Lag
		for _, s := range streams {
			lag := telemetry.Lag{Source: s.Stream, Waiting: s.Lag, Pending: s.Pending, Oldest: s.OldestPending}
			if !s.LagKnown {
				lag.Waiting = telemetry.Unknown
			}
			lags = append(lags, lag)
		}
		return lags, nil
	})
	if err != nil {
		panic(err)
	}
	defer stop() //nolint:errcheck // nobody collects any more
	if err := consumer.Run(ctx); err != nil {
		panic(err)
	}
}
