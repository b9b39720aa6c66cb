package redisstreams_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// BenchmarkPublish compares Publish, which stops a key at its first failure, with the fastest way that does not: one pipeline of
// plain XADDs. 500 bytes, bulks of 500.
//
//	FANOUT_TEST_REDIS=redis://... go test ./brokers/redisstreams -run '^$' -bench Publish -count 6
func BenchmarkPublish(b *testing.B) {
	const bulk = 500
	prefix := testenv.RedisPrefix(b)
	broker := open(b, testenv.Redis(b))
	client := broker.Client()
	msgs := many(prefix+"order", bulk, 100)
	for i := range msgs {
		msgs[i].ID = uuid.NewString()
		msgs[i].Type = "Ordering.OrderPlaced.v1"
		msgs[i].CorrelationID = uuid.NewString()
		msgs[i].Payload = bytes.Repeat([]byte("x"), 500)
		msgs[i].Attributes = []brokers.Attribute{{Name: "traceparent", Value: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}
	}
	measure := func(b *testing.B, publish func()) {
		b.ReportAllocs()
		for n := 0; b.Loop(); n++ {
			publish()
			if n%100 == 99 { // the same for both, and rare: memory stays bounded
				require.NoError(b, client.Unlink(b.Context(), msgs[0].Destination).Err())
			}
		}
		b.ReportMetric(float64(b.N*bulk)/b.Elapsed().Seconds(), "msgs/s")
	}

	b.Run("script", func(b *testing.B) {
		measure(b, func() {
			for _, result := range broker.Publish(b.Context(), msgs) {
				require.NoError(b, result.Err)
			}
		})
	})
	b.Run("pipeline", func(b *testing.B) {
		measure(b, func() {
			_, err := client.Pipelined(context.Background(), func(p redis.Pipeliner) error {
				for i := range msgs {
					m := &msgs[i]
					values := []any{"data", m.Payload}
					m.Fields(func(name, value string) bool {
						values = append(values, name, value)
						return true
					})
					p.XAdd(context.Background(), &redis.XAddArgs{Stream: m.Destination, Values: values})
				}
				return nil
			})
			require.NoError(b, err)
		})
	})
}
