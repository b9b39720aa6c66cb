package redisstreams_test

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// BenchmarkPublish compares Publish, which stops a key at its first failure, with the fastest way
// that does not: one pipeline of plain XADDs. 500 bytes, bulks of 500. A key occurs once in a chunk
// (cold), or ten or more times (hot). What the script takes is seen with
// MaxAge. server-us/msg is the processor time of the server, which should have no other client.
//
//	FANOUT_TEST_REDIS=redis://... go test ./brokers/redisstreams -run '^$' -bench Publish -count 6
func BenchmarkPublish(b *testing.B) {
	const bulk = 500
	prefix := testenv.RedisPrefix(b)
	broker := open(b, testenv.Redis(b))
	client := broker.Client()
	stream := prefix + "order"
	measure := func(b *testing.B, publish func()) {
		b.ReportAllocs()
		before := serverTime(b, client)
		for n := 0; b.Loop(); n++ {
			publish()
			if n%100 == 99 { // the same for both, and rare: memory stays bounded
				require.NoError(b, client.Unlink(b.Context(), stream).Err())
			}
		}
		b.ReportMetric(float64(b.N*bulk)/b.Elapsed().Seconds(), "msgs/s")
		b.ReportMetric((serverTime(b, client)-before)*1e6/float64(b.N*bulk), "server-us/msg")
	}
	aged := redisstreams.New(client, redisstreams.Settings{MaxAge: 24 * time.Hour})
	for _, c := range []struct {
		name   string
		broker *redisstreams.Broker
		key    func(i int) int
	}{
		{"cold", broker, func(i int) int { return i % 100 }},
		{"hot", broker, func(i int) int { return i % 10 }},
		{"hot by age", aged, func(i int) int { return i % 10 }},
	} {
		msgs := many(stream, bulk, 100)
		for i := range msgs {
			msgs[i].OrderingKey = fmt.Sprint("key-", c.key(i))
			likeRealOnes(&msgs[i])
		}
		b.Run(c.name, func(b *testing.B) {
			measure(b, func() {
				for _, result := range c.broker.Publish(b.Context(), msgs) {
					require.NoError(b, result.Err)
				}
			})
		})
	}
	msgs := many(stream, bulk, 100)
	for i := range msgs {
		likeRealOnes(&msgs[i])
	}
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

// serverTime is how many seconds of processor time the server has taken.
func serverTime(b *testing.B, client redis.UniversalClient) (seconds float64) {
	b.Helper()
	info, err := client.Info(b.Context(), "cpu").Result()
	require.NoError(b, err)
	for line := range strings.Lines(info) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); name == "used_cpu_user" || name == "used_cpu_sys" {
			time, err := strconv.ParseFloat(value, 64)
			require.NoError(b, err)
			seconds += time
		}
	}
	return seconds
}

func likeRealOnes(m *brokers.Message) {
	m.ID = uuid.NewString()
	m.Type = "Ordering.OrderPlaced.v1"
	m.CorrelationID = uuid.NewString()
	m.Payload = bytes.Repeat([]byte("x"), 500)
	m.Attributes = []brokers.Attribute{{Name: "traceparent", Value: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}
}
