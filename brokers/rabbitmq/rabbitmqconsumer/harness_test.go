package rabbitmqconsumer_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/rabbitmq"
	"github.com/gorm-fanout/fanout/brokers/rabbitmq/rabbitmqconsumer"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumertest"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/toxic"
)

func TestMain(m *testing.M) {
	consumertest.Main(m, func(source string, handler inbox.Handler) (consumertest.Consumer, error) {
		url, queue, _ := strings.Cut(source, " ")
		return rabbitmqconsumer.NewConsumer(url, queue, handler, rabbitmqconsumer.Config{})
	})
}

func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("Exclusive", func(t *testing.T) { // of several consumers one is active
		t.Parallel()
		kinds := map[string]amqp.Table{
			"Classic": {"x-single-active-consumer": true},
			"Quorum":  {"x-single-active-consumer": true, "x-queue-type": "quorum"},
		}
		name := func(kind string) string { return kind }
		testenv.OnEach(t, []string{"Classic", "Quorum"}, name, func(t *testing.T, kind string) {
			consumertest.Run(t, consumertest.Harness{
				Source:   func(t *testing.T) *consumertest.Source { return newQueue(t, kinds[kind]).source(t) },
				Together: true,
			})
		})
	})
	t.Run("SideBySide", func(t *testing.T) { // several consumers of a queue, at once
		t.Parallel()
		consumertest.Run(t, consumertest.Harness{
			Source: func(t *testing.T) *consumertest.Source { return newQueue(t, nil).source(t) },
		})
	})
}

// queue is one with an exchange of its own, and a queue for dead letters.
type queue struct {
	url, name, dead string
	broker          *rabbitmq.Broker
	conn            *amqp.Connection
}

func newQueue(t *testing.T, arguments amqp.Table) *queue {
	t.Helper()
	q := &queue{url: testenv.RabbitMQ(t), name: testenv.RabbitMQPrefix(t) + strings.ToLower(rand.Text())}
	q.dead = q.name + "-dead"
	conn, err := amqp.Dial(q.url)
	require.NoError(t, err)
	q.conn = conn
	t.Cleanup(func() {
		q.do(t, func(ch *amqp.Channel) error {
			for _, each := range []string{q.name, q.dead} {
				if _, err := ch.QueueDelete(each, false, false, false); err != nil {
					return err
				}
			}
			return ch.ExchangeDelete(q.name, false, false)
		})
		assert.NoError(t, conn.Close())
	})
	q.do(t, func(ch *amqp.Channel) error {
		if err := ch.ExchangeDeclare(q.name, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
			return err
		}
		if _, err := ch.QueueDeclare(q.name, true, false, false, false, arguments); err != nil {
			return err
		}
		if _, err := ch.QueueDeclare(q.dead, true, false, false, false, nil); err != nil {
			return err
		}
		return ch.QueueBind(q.name, "#", q.name, false, nil)
	})
	q.broker, err = rabbitmq.Open(rabbitmq.Settings{URL: adapter.Secret(q.url), Exchange: q.name})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, q.broker.Close(context.Background())) })
	return q
}

// do makes a call on a channel of its own.
func (q *queue) do(t testing.TB, call func(*amqp.Channel) error) {
	t.Helper()
	channel, err := q.conn.Channel()
	require.NoError(t, err)
	require.NoError(t, call(channel))
	require.NoError(t, channel.Close())
}

func (q *queue) source(t *testing.T) *consumertest.Source {
	t.Helper()
	var published atomic.Int64
	front := startTap(t, hostPort(t, q.url))
	proxy := toxic.Start(t, front.addr())
	tapped := strings.Replace(q.url, hostPort(t, q.url), front.addr(), 1)
	ready := func() (n int) {
		q.do(t, func(ch *amqp.Channel) error {
			found, err := ch.QueueInspect(q.name) //nolint:staticcheck // QueueDeclarePassive wants to know the arguments
			n = found.Messages
			return err
		})
		return n
	}
	// A confirmation that is sent just before a connection ends can be lost, with quorum queues also within
	// the server: then its message is in the queue again, and is confirmed twice.
	sent := func() int { return int(published.Load() - front.acked.Load()) }
	left := func(*testing.T) int { return max(sent(), ready()) }
	t.Cleanup(func() { // when all consumers have ended
		require.Eventually(t, func() bool { return ready() >= sent() }, time.Minute, 50*time.Millisecond, "what is not confirmed is in the queue")
	})
	return &consumertest.Source{
		Publish: func(t *testing.T, messages ...consumertest.Message) {
			q.publish(t, messages...)
			published.Add(int64(len(messages)))
		},
		PublishForeign: func(t *testing.T, key string, payload []byte, attributes map[string]string) {
			out := amqp.Publishing{Body: payload, ContentType: attributes["content-type"], Type: attributes["type"], Headers: amqp.Table{inbox.FieldOrderingKey: key}}
			for name, value := range attributes {
				out.Headers[strings.Replace(name, "ce-", "cloudEvents:", 1)] = value
			}
			q.do(t, func(ch *amqp.Channel) error {
				if err := ch.Confirm(false); err != nil {
					return err
				}
				confirmation, err := ch.PublishWithDeferredConfirmWithContext(t.Context(), q.name, "foreign", true, false, out)
				if err == nil {
					_, err = confirmation.WaitContext(t.Context())
				}
				return err
			})
			published.Add(1)
		},
		Consumer: func(t *testing.T, handler inbox.Handler, s *consumertest.Settings) consumertest.Consumer {
			url := tapped
			if s.ThroughNetwork {
				url = strings.Replace(q.url, hostPort(t, q.url), proxy.Addr(t), 1)
			}
			config := rabbitmqconsumer.Config{ConsumerConfig: s.ConsumerConfig}
			if s.HasDeadLetters {
				config.DeadLetters = inbox.Always(q.dead)
			}
			c, err := rabbitmqconsumer.NewConsumer(url, q.name, handler, config)
			require.NoError(t, err)
			return c
		},
		Unconfirmed: left,
		DeadLetters: q.letters,
		Network:     proxy,
		Child:       tapped + " " + q.name,
	}
}

func hostPort(t testing.TB, url string) string {
	t.Helper()
	uri, err := amqp.ParseURI(url)
	require.NoError(t, err)
	return fmt.Sprintf("%s:%d", uri.Host, uri.Port)
}

// publish publishes as the relay does, through brokers/rabbitmq.
func (q *queue) publish(t *testing.T, messages ...consumertest.Message) {
	t.Helper()
	out := make([]brokers.Message, len(messages))
	for i, m := range messages {
		out[i] = brokers.Message{ID: m.ID, Destination: "ordering::order", Type: m.Type, OrderingKey: m.Key, Payload: m.Payload}
	}
	for _, result := range q.broker.Publish(t.Context(), out) {
		require.NoError(t, result.Err)
	}
}

func (q *queue) letters(t *testing.T) (all []consumertest.DeadLetter) {
	t.Helper()
	q.do(t, func(ch *amqp.Channel) error {
		for {
			d, found, err := ch.Get(q.dead, true)
			if !found || err != nil {
				return err
			}
			text := func(name string) string { value, _ := d.Headers[name].(string); return value }
			all = append(all, consumertest.DeadLetter{
				ID: d.MessageId, Key: text(brokers.FieldOrderingKey), Payload: d.Body,
				Reason: text(inbox.FieldDeadLetterReason), Attempts: text(inbox.FieldDeadLetterAttempts),
			})
		}
	})
	return all
}
