package rabbitmq_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/brokertest"
	"github.com/gorm-fanout/fanout/brokers/rabbitmq"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/testservers"
	"github.com/gorm-fanout/fanout/internal/toxic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("shared", func(t *testing.T) { // a server that others use at the same time: what stops is the way to it
		t.Parallel()
		url := testenv.RabbitMQ(t)
		h := harness(t, url, testenv.RabbitMQPrefix(t), amqp.QueueTypeQuorum)
		uri, err := amqp.ParseURI(url)
		require.NoError(t, err)
		way := toxic.Start(t, hostPort(uri))
		h.Open = func(t *testing.T) brokers.Broker { return h.openAt(t, at(url, way.Addr(t))) }
		h.Stop, h.Start = func(t *testing.T) { way.Down(t) }, func(t *testing.T) { way.Up(t) }
		h.throughProxy(t, url, hostPort(uri))
		brokertest.Run(t, h.Harness)
	})
	t.Run("process", func(t *testing.T) { // a server of our own, which is stopped
		t.Parallel()
		testenv.NeedLong(t)
		server := startServer(t)
		h := harness(t, server.URL, "", amqp.QueueTypeClassic)
		// Not SIGKILL: RabbitMQ 3.10 then keeps the queue and its messages, but may forget a binding that was
		// made a moment before.
		h.Stop = func(t *testing.T) { require.NoError(t, server.End(syscall.SIGTERM, 3*time.Minute)) }
		h.Start = func(t *testing.T) { require.NoError(t, server.Start(t.Context())) }
		h.throughProxy(t, server.URL, server.Address())
		h.Patience = 4 * time.Minute // a node takes many seconds to start
		brokertest.Run(t, h.Harness)
	})
}

// startServer starts a node of the test's own, with lines of rabbitmq.conf.
func startServer(t *testing.T, settings ...string) *testservers.RabbitMQ {
	t.Helper()
	server, err := testservers.OwnRabbitMQ(t.Context(), settings...)
	if err != nil {
		testenv.RabbitMQ(t) // says what is missing, or that the servers are required
		require.NoError(t, err)
	}
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	return server
}

// at is a URL with another address.
func at(url, address string) string {
	scheme, rest, _ := strings.Cut(url, "://")
	user, rest, _ := strings.Cut(rest, "@")
	_, path, _ := strings.Cut(rest, "/")
	return scheme + "://" + user + "@" + address + "/" + path
}

func hostPort(uri amqp.URI) string { return net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port)) }

// open opens a broker, and closes it with the test.
func open(t testing.TB, url string, settings ...rabbitmq.Settings) *rabbitmq.Broker {
	t.Helper()
	var s rabbitmq.Settings
	if len(settings) > 0 {
		s = settings[0]
	}
	s.URL = adapter.Secret(url)
	b, err := rabbitmq.Open(s)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close(context.Background())) })
	return b
}

// rig is a harness that can open brokers at other addresses of its server.
type rig struct {
	brokertest.Harness

	settings rabbitmq.Settings
}

func (r *rig) openAt(t *testing.T, url string) brokers.Broker {
	t.Helper()
	settings := r.settings
	settings.URL = adapter.Secret(url)
	b, err := rabbitmq.Open(settings)
	require.NoError(t, err)
	return b
}

// throughProxy puts a network before the server that can be made ill.
func (r *rig) throughProxy(t *testing.T, url, address string) {
	t.Helper()
	proxy := toxic.Start(t, address)
	r.Network = proxy
	r.OpenThroughNetwork = func(t *testing.T) brokers.Broker { return r.openAt(t, at(url, proxy.Addr(t))) }
}

// harness reaches the server at url: one exchange for all destinations, and a queue of a type for each.
func harness(t *testing.T, url, prefix, queueType string) *rig {
	t.Helper()
	var (
		number  atomic.Int64
		refused sync.Map
		c       = &consumer{url: url, exchange: prefix + rabbitmq.DefaultExchange, queueType: queueType, seen: map[string][]brokers.Message{}}
		nowhere = prefix + "refuses"
	)
	t.Cleanup(func() { c.close(t) })
	c.do(t, func(ch *amqp.Channel) error {
		if err := ch.ExchangeDeclare(c.exchange, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
			return err
		}
		// A queue for no message at all, which the server refuses to put one into.
		_, err := ch.QueueDeclare(nowhere, true, false, false, false, amqp.Table{"x-max-length": 0, "x-overflow": "reject-publish"})
		if err != nil {
			return err
		}
		return ch.QueueBind(nowhere, nowhere, c.exchange, false, nil)
	})
	c.queues = append(c.queues, nowhere)
	r := &rig{settings: rabbitmq.Settings{
		Exchange: c.exchange, MaxMessageBytes: 1 << 20,
		// A refused message goes to that queue: so it is the server that refuses it.
		RoutingKey: func(m *brokers.Message) string {
			if _, is := refused.Load(m.ID); is {
				return nowhere
			}
			return m.Destination
		},
	}}
	r.Harness = brokertest.Harness{
		Open: func(t *testing.T) brokers.Broker { return r.openAt(t, url) },
		Destination: func(t *testing.T) string {
			name := fmt.Sprintf("%sordering::order%d", prefix, number.Add(1))
			c.bind(t, name)
			return name
		},
		Received:         c.received,
		RefusesElsewhere: true, // to a queue that is full
		Refuse: func(_ *testing.T, id string) (restore func()) {
			refused.Store(id, true)
			return func() { refused.Delete(id) }
		},
	}
	return r
}

// A consumer has a queue for each destination, and takes out of it what there is.
type consumer struct {
	url, exchange string
	queueType     string // "" = the server's default
	conn          *amqp.Connection
	channel       *amqp.Channel
	queues        []string
	consumed      int // calls of Consume
	seen          map[string][]brokers.Message
}

// do has a call made, over a new connection where the server was away.
func (c *consumer) do(t testing.TB, call func(*amqp.Channel) error) {
	t.Helper()
	if c.conn == nil || c.conn.IsClosed() || c.channel.IsClosed() {
		if c.conn != nil {
			_ = c.conn.Close()
		}
		var err error
		c.conn, err = amqp.Dial(c.url)
		require.NoError(t, err)
		c.channel, err = c.conn.Channel()
		require.NoError(t, err)
	}
	require.NoError(t, call(c.channel))
}

// bind makes the queue of a destination.
func (c *consumer) bind(t testing.TB, destination string) {
	t.Helper()
	c.do(t, func(ch *amqp.Channel) error {
		var arguments amqp.Table
		if c.queueType != "" {
			arguments = amqp.Table{amqp.QueueTypeArg: c.queueType}
		}
		if _, err := ch.QueueDeclare(destination, true, false, false, false, arguments); err != nil {
			return err
		}
		return ch.QueueBind(destination, destination, c.exchange, false, nil)
	})
	c.queues = append(c.queues, destination)
}

// received takes the messages that are in the queue of a destination, and returns them with all that were
// there before. Messages that come meanwhile are for the next time: they may come faster than it reads.
func (c *consumer) received(t *testing.T, destination string) []brokers.Message {
	t.Helper()
	c.do(t, func(ch *amqp.Channel) error {
		queue, err := ch.QueueDeclarePassive(destination, true, false, false, false, nil)
		if err != nil || queue.Messages == 0 {
			return err
		}
		// A tag that is used again crashes the channel's process in the server (INTERNAL_ERROR): a quorum queue
		// still works on the deliveries of the consumer that had it before.
		c.consumed++
		tag := "test-" + strconv.Itoa(c.consumed)
		deliveries, err := ch.Consume(destination, tag, true, false, false, false, nil)
		if err != nil {
			return err
		}
		for left := queue.Messages; left > 0; left-- {
			delivery, open := <-deliveries
			if !open {
				return amqp.ErrClosed
			}
			c.seen[destination] = append(c.seen[destination], fromWire(&delivery))
		}
		err = ch.Cancel(tag, false)
		for delivery := range deliveries { // which the server had sent by then
			c.seen[destination] = append(c.seen[destination], fromWire(&delivery))
		}
		return err
	})
	return c.seen[destination]
}

// close deletes what the consumer made.
func (c *consumer) close(t testing.TB) {
	t.Helper()
	for _, queue := range c.queues {
		c.do(t, func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete(queue, false, false, false)
			return err
		})
	}
	c.do(t, func(ch *amqp.Channel) error { return ch.ExchangeDelete(c.exchange, false, false) })
	require.NoError(t, c.conn.Close())
}

// fromWire is the message of a delivery. Its priority is another one than it was sent with.
func fromWire(d *amqp.Delivery) brokers.Message {
	m := brokers.Message{
		ID: d.MessageId, Destination: d.RoutingKey, Type: d.Type, ContentType: d.ContentType, Payload: d.Body, CorrelationID: d.CorrelationId,
	}
	for name, value := range d.Headers {
		if name == brokers.FieldOrderingKey {
			m.OrderingKey = value.(string)
		} else if text, is := value.(string); is {
			m.Attributes = append(m.Attributes, brokers.Attribute{Name: name, Value: text})
		}
	}
	return m
}
