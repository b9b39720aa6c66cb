package rabbitmq_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/rabbitmq"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// BenchmarkPublish compares Publish with a loop that hands all messages to the client library and then
// waits for their confirmations: the fastest way for one that does not care about order after a
// failure. 500 bytes, 100 messages per call. Each has a key of its own (cold), or ten have the same
// (hot): those go one after the other, which the loop knows nothing of.
//
//	FANOUT_TEST_RABBITMQ=amqp://... go test ./brokers/rabbitmq -run '^$' -bench Publish -count 6
func BenchmarkPublish(b *testing.B) {
	const bulk = 100
	url, prefix := testenv.RabbitMQ(b), testenv.RabbitMQPrefix(b)
	c := &consumer{url: url, exchange: prefix + "bench", seen: map[string][]brokers.Message{}}
	b.Cleanup(func() { c.close(b) })
	c.do(b, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(c.exchange, amqp.ExchangeTopic, true, false, false, false, nil)
	})
	destination := prefix + "order"
	c.bind(b, destination)
	measure := func(b *testing.B, publish func()) {
		b.ReportAllocs()
		publish() // connections, channels
		for n := 0; b.Loop(); n++ {
			publish()
			if n%100 == 99 { // the same for both, and rare: the queue stays short
				b.StopTimer()
				c.do(b, func(ch *amqp.Channel) error {
					_, err := ch.QueuePurge(destination, false)
					return err
				})
				b.StartTimer()
			}
		}
		b.ReportMetric(float64(b.N*bulk)/b.Elapsed().Seconds(), "msgs/s")
	}
	messages := func(keys int) []brokers.Message {
		msgs := make([]brokers.Message, bulk)
		for i := range msgs {
			msgs[i] = realistic(destination, fmt.Sprint("ordering::order-", i%keys))
		}
		return msgs
	}
	for _, bench := range []struct {
		name string
		keys int
	}{{"cold", bulk}, {"hot", 10}} {
		msgs := messages(bench.keys)
		b.Run(bench.name, func(b *testing.B) {
			broker := open(b, url, rabbitmq.Settings{Exchange: c.exchange})
			measure(b, func() {
				for _, result := range broker.Publish(b.Context(), msgs) {
					require.NoError(b, result.Err)
				}
			})
		})
	}
	msgs := messages(bulk)
	b.Run("loop", func(b *testing.B) {
		conn, err := amqp.Dial(url)
		require.NoError(b, err)
		defer conn.Close()
		channel, err := conn.Channel()
		require.NoError(b, err)
		require.NoError(b, channel.Confirm(false))
		returns := channel.NotifyReturn(make(chan amqp.Return, bulk))
		measure(b, func() {
			confirmations := make([]*amqp.DeferredConfirmation, len(msgs))
			for i := range msgs {
				m := &msgs[i]
				headers := amqp.Table{brokers.FieldOrderingKey: m.OrderingKey}
				for _, a := range m.Attributes {
					headers[a.Name] = a.Value
				}
				confirmations[i], err = channel.PublishWithDeferredConfirmWithContext(b.Context(), c.exchange, m.Destination, true, false, amqp.Publishing{
					MessageId: m.ID, Type: m.Type, ContentType: m.ContentType, CorrelationId: m.CorrelationID,
					DeliveryMode: amqp.Persistent, Priority: 4, Headers: headers, Body: m.Payload,
				})
				require.NoError(b, err)
			}
			for _, confirmation := range confirmations {
				acked, err := confirmation.WaitContext(b.Context())
				require.NoError(b, err)
				require.True(b, acked)
			}
			require.Empty(b, returns)
		})
	})
}

func realistic(destination, key string) brokers.Message {
	return brokers.Message{
		ID: uuid.NewString(), Destination: destination, Type: "Ordering.OrderPlaced.v1", OrderingKey: key,
		ContentType: brokers.DefaultContentType, CorrelationID: uuid.NewString(), Payload: bytes.Repeat([]byte("x"), 500),
		Attributes: []brokers.Attribute{{Name: "traceparent", Value: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}},
	}
}
