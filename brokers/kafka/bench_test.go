package kafka_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gorm-fanout/fanout/brokers"
)

// BenchmarkPublish compares Publish with a loop over the same client, which hands everything to it and
// waits: with 100 keys (cold) and with one (hot). Bulks of 100 and 500 messages of 500 bytes each, a
// cluster in this process.
//
//	go test ./brokers/kafka -run '^$' -bench Publish -count 6
func BenchmarkPublish(b *testing.B) {
	c := startCluster(b, kfake.NumBrokers(1), kfake.SeedTopics(6, "bench.order"))
	broker := open(b, c.seeds())
	byHand, err := kgo.NewClient(kgo.SeedBrokers(c.seeds()...), kgo.DefaultProduceTopic("bench.order"), kgo.ProducerLinger(0))
	require.NoError(b, err)
	b.Cleanup(byHand.Close)
	ways := []struct {
		name    string
		publish func(msgs []brokers.Message)
	}{
		{"broker", func(msgs []brokers.Message) {
			for _, result := range broker.Publish(b.Context(), msgs) {
				require.NoError(b, result.Err)
			}
		}},
		{"loop", func(msgs []brokers.Message) {
			records := make([]*kgo.Record, len(msgs))
			for i := range msgs {
				records[i] = &kgo.Record{Key: []byte(msgs[i].OrderingKey), Value: msgs[i].Payload}
				for name, value := range msgs[i].Fields {
					records[i].Headers = append(records[i].Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
				}
			}
			require.NoError(b, byHand.ProduceSync(b.Context(), records...).FirstErr())
		}},
	}
	for _, bulk := range []int{100, 500} {
		for _, keys := range []int{100, 1} {
			msgs := make([]brokers.Message, bulk)
			for i := range msgs {
				msgs[i] = numbered("bench::order", fmt.Sprint("key-", i%keys), i)
				msgs[i].Type, msgs[i].CorrelationID, msgs[i].Payload = "Ordering.OrderPlaced.v1", uuid.NewString(), bytes.Repeat([]byte("x"), 500)
				msgs[i].Attributes = []brokers.Attribute{{Name: "traceparent", Value: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}
			}
			for _, way := range ways {
				b.Run(fmt.Sprintf("bulk=%d/keys=%d/%s", bulk, keys, way.name), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						way.publish(msgs)
					}
					b.ReportMetric(float64(b.N*bulk)/b.Elapsed().Seconds(), "msgs/s")
				})
			}
		}
	}
}
