package nats_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/uuid"
	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
)

// BenchmarkPublish compares Publish with loops over the same client: one that sends everything and
// then waits for the acknowledgments (beside cold, 100 keys), which does not keep the order of a key
// when a message is refused, and one that waits for each (beside hot, one key). 100 messages of 500
// bytes, a stream in memory.
//
//	go test ./brokers/nats -run '^$' -bench Publish -count 6
func BenchmarkPublish(b *testing.B) {
	const bulk = 100
	s := startServer(b, nil)
	s.stream(b, jetstream.StreamConfig{
		Name: "BENCH", Subjects: []string{"bench.>"}, Storage: jetstream.MemoryStorage, MaxMsgs: 100_000, AllowAtomicPublish: false,
	})
	broker := open(b, s.url)
	measure := func(b *testing.B, key func(i int) string, publish func(msgs []brokers.Message)) {
		b.ReportAllocs()
		msgs := make([]brokers.Message, bulk)
		for i := range msgs {
			msgs[i] = numbered("bench::order", key(i), i)
			msgs[i].Type, msgs[i].CorrelationID, msgs[i].Payload = "Ordering.OrderPlaced.v1", uuid.NewString(), bytes.Repeat([]byte("x"), 500)
			msgs[i].Attributes = []brokers.Attribute{{Name: "traceparent", Value: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}
		}
		for b.Loop() {
			for i := range msgs { // a repeated id would be dropped, which is cheaper
				msgs[i].ID = uuid.NewString()
			}
			publish(msgs)
		}
		b.ReportMetric(float64(b.N*bulk)/b.Elapsed().Seconds(), "msgs/s")
	}
	cold, hot := func(i int) string { return fmt.Sprint("key-", i) }, func(int) string { return "key" }
	fanout := func(msgs []brokers.Message) {
		for _, result := range broker.Publish(b.Context(), msgs) {
			require.NoError(b, result.Err)
		}
	}
	b.Run("cold/broker", func(b *testing.B) { measure(b, cold, fanout) })
	b.Run("cold/loop", func(b *testing.B) {
		measure(b, cold, func(msgs []brokers.Message) {
			acks := make([]jetstream.PubAckFuture, len(msgs))
			for i := range msgs {
				ack, err := s.js.PublishMsgAsync(byHand(&msgs[i]))
				require.NoError(b, err)
				acks[i] = ack
			}
			for _, ack := range acks {
				awaitByHand(b, ack)
			}
		})
	})
	b.Run("hot/broker", func(b *testing.B) { measure(b, hot, fanout) })
	b.Run("hot/loop", func(b *testing.B) {
		measure(b, hot, func(msgs []brokers.Message) {
			for i := range msgs {
				ack, err := s.js.PublishMsgAsync(byHand(&msgs[i]))
				require.NoError(b, err)
				awaitByHand(b, ack)
			}
		})
	})
}

func awaitByHand(b *testing.B, ack jetstream.PubAckFuture) {
	b.Helper()
	select {
	case <-ack.Ok():
	case err := <-ack.Err():
		require.NoError(b, err)
	}
}

func byHand(m *brokers.Message) *client.Msg {
	wire := client.NewMsg("bench.order")
	wire.Data = m.Payload
	wire.Header.Set(jetstream.MsgIDHeader, m.ID+"@"+wire.Subject)
	for name, value := range m.Fields {
		wire.Header.Set(name, value)
	}
	return wire
}
