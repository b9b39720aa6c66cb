package rabbitmq_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/rabbitmq"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/toxic"
)

// many makes n messages to a destination, with so many keys by turns.
func many(destination string, n, keys int) []brokers.Message {
	msgs := make([]brokers.Message, n)
	for i := range msgs {
		msgs[i] = brokers.Message{
			ID: uuid.NewString(), Destination: destination, Type: "T.v1", OrderingKey: fmt.Sprint("key-", i%keys), Payload: fmt.Append(nil, i),
		}
	}
	return msgs
}

// verdicts counts results by class and scope.
func verdicts(results []brokers.Result) map[string]int {
	count := map[string]int{}
	for _, result := range results {
		class, scope := brokers.Classify(result.Err)
		count[strings.TrimSpace(string(class)+" "+string(scope))]++
	}
	return count
}

// unavailable checks that the broker as a whole is, and that no message is to blame. How many were
// sent before that was known is a matter of chance.
func unavailable(t *testing.T, results []brokers.Result) {
	t.Helper()
	got := verdicts(results)
	assert.Positive(t, got["unavailable broker"], "%v", got)
	assert.Equal(t, len(results), got["unavailable broker"]+got["not_sent"], "%v", got)
}

// exchange makes an exchange of a type for one test, and returns what can bind and read queues there.
func exchange(t *testing.T, url, kind string) *consumer {
	t.Helper()
	prefix := testenv.RabbitMQPrefix(t)
	c := &consumer{url: url, exchange: prefix + "exchange", seen: map[string][]brokers.Message{}}
	c.do(t, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(c.exchange, kind, true, false, false, false, nil)
	})
	t.Cleanup(func() { c.close(t) })
	return c
}

func TestMissingExchange(t *testing.T) {
	t.Parallel()
	url, name := testenv.RabbitMQ(t), testenv.RabbitMQPrefix(t)+"missing"
	b := open(t, url, rabbitmq.Settings{Exchange: name})
	for range 2 {
		results := b.Publish(t.Context(), many("d", 90, 30))
		unavailable(t, results)
		require.ErrorContains(t, results[0].Err, "no exchange '"+name+"'")
		require.ErrorContains(t, results[0].Err, "create_destinations")
	}
	err := b.CheckDestination(t.Context(), "d")
	class, _ := brokers.Classify(err)
	assert.Equal(t, brokers.ClassUnavailable, class)
	require.ErrorContains(t, err, "no exchange")
	require.ErrorContains(t, b.Ping(t.Context()), "no exchange", "without it nothing can be published")
}

// A message that nobody is bound for waits, with the others to its routing key and on its key, and
// nothing else does.
func TestUnroutable(t *testing.T) {
	t.Parallel()
	c := exchange(t, testenv.RabbitMQ(t), amqp.ExchangeTopic)
	bound, unbound := c.exchange+".bound", c.exchange+".unbound"
	c.bind(t, bound)
	b := open(t, c.url, rabbitmq.Settings{Exchange: c.exchange})
	msgs := many(bound, 40, 4)
	for i := range msgs {
		if i%4 == 1 && i >= 9 {
			msgs[i].Destination = unbound
		}
	}
	msgs[17].Destination = bound // behind an unroutable one of its key
	results := b.Publish(t.Context(), msgs)
	for i, result := range results {
		class, scope := brokers.Classify(result.Err)
		switch {
		case i == 9:
			require.Equal(t, brokers.ClassUnavailable, class)
			require.Equal(t, brokers.ScopeDestination, scope)
			require.ErrorContains(t, result.Err, "NO_ROUTE")
			require.ErrorContains(t, result.Err, "bind a queue")
		case i%4 == 1 && i > 9:
			require.Equal(t, brokers.ClassNotSent, class, "%d: %v", i, result.Err)
		default:
			require.NoError(t, result.Err, "%d", i)
		}
	}
	assert.Len(t, c.received(t, bound), 32)

	// Without a key each finds out for itself, as far as they were sent by then; afterwards none is sent.
	msgs = many(unbound, 1200, 1)
	for i := range msgs {
		msgs[i].OrderingKey = ""
	}
	got := verdicts(b.Publish(t.Context(), msgs))
	assert.Positive(t, got["unavailable destination"])
	assert.Positive(t, got["not_sent"])
	assert.Equal(t, 1200, got["unavailable destination"]+got["not_sent"])

	c.bind(t, unbound)
	assert.Equal(t, map[string]int{"": 1200}, verdicts(b.Publish(t.Context(), msgs)))
}

// A queue that refuses a message has it refused to the publisher, whatever other queues do with it. That
// is no message's fault: none loses an attempt while consumers are behind.
func TestFullQueue(t *testing.T) {
	t.Parallel()
	c := exchange(t, testenv.RabbitMQ(t), amqp.ExchangeTopic)
	full := c.exchange + ".full"
	c.do(t, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(full, true, false, false, false, amqp.Table{"x-max-length": 3, "x-overflow": "reject-publish"})
		c.queues = append(c.queues, full)
		return err
	})
	c.do(t, func(ch *amqp.Channel) error { return ch.QueueBind(full, "#", c.exchange, false, nil) })
	b := open(t, c.url, rabbitmq.Settings{Exchange: c.exchange})
	msgs := many("d", 10, 1)
	results := b.Publish(t.Context(), msgs)
	assert.Equal(t, map[string]int{"": 3, "unavailable destination": 1, "not_sent": 6}, verdicts(results))
	require.ErrorContains(t, results[3].Err, "reject-publish")

	// There is room again: the key goes on where it stopped.
	require.Len(t, c.received(t, full), 3)
	assert.Equal(t, map[string]int{"": 3, "unavailable destination": 1, "not_sent": 3}, verdicts(b.Publish(t.Context(), msgs[3:])))
	got := c.received(t, full)
	require.Len(t, got, 6)
	for i, m := range got {
		assert.Equal(t, msgs[i].ID, m.ID)
	}
}

// Nothing but what is asked for is declared, and what is there otherwise is named.
func TestDeclare(t *testing.T) {
	t.Parallel()
	url, name := testenv.RabbitMQ(t), testenv.RabbitMQPrefix(t)+"declared"
	c := &consumer{url: url, exchange: name, seen: map[string][]brokers.Message{}}
	t.Cleanup(func() { c.close(t) })
	for range 2 {
		require.NoError(t, open(t, url, rabbitmq.Settings{Exchange: name, CreateDestinations: true}).CheckDestination(t.Context(), "d"))
	}

	other := exchange(t, url, amqp.ExchangeFanout)
	b := open(t, url, rabbitmq.Settings{Exchange: other.exchange, CreateDestinations: true})
	results := b.Publish(t.Context(), many("d", 5, 5))
	assert.Equal(t, map[string]int{"unavailable broker": 1, "not_sent": 4}, verdicts(results))
	require.ErrorContains(t, results[0].Err, "inequivalent arg 'type'")
	require.ErrorContains(t, results[0].Err, "leave create_destinations out")

	// Without it, an exchange of any type will do.
	other.bind(t, other.exchange+".queue")
	b = open(t, url, rabbitmq.Settings{Exchange: other.exchange})
	assert.Equal(t, map[string]int{"": 5}, verdicts(b.Publish(t.Context(), many("d", 5, 5))))
}

// One queue of several gets all messages of a key, and in their order, behind an exchange that hashes
// the header.
func TestConsistentHash(t *testing.T) {
	t.Parallel()
	c := exchange(t, testenv.RabbitMQ(t), amqp.ExchangeTopic)
	hash := c.exchange + ".hash"
	c.do(t, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(hash, "x-consistent-hash", true, false, false, false, amqp.Table{"hash-header": brokers.FieldOrderingKey})
	})
	t.Cleanup(func() { c.do(t, func(ch *amqp.Channel) error { return ch.ExchangeDelete(hash, false, false) }) })
	c.do(t, func(ch *amqp.Channel) error { return ch.ExchangeBind(hash, "ordering::order", c.exchange, false, nil) })
	const queues = 3
	for i := range queues {
		name := fmt.Sprint(hash, i)
		c.queues = append(c.queues, name)
		c.do(t, func(ch *amqp.Channel) error {
			if _, err := ch.QueueDeclare(name, true, false, false, false, nil); err != nil {
				return err
			}
			return ch.QueueBind(name, "1", hash, false, nil)
		})
	}
	b := open(t, c.url, rabbitmq.Settings{Exchange: c.exchange})
	msgs := many("ordering::order", 600, 30)
	require.Equal(t, map[string]int{"": 600}, verdicts(b.Publish(t.Context(), msgs)))
	next, queueOf, total := map[string]int{}, map[string]int{}, 0
	for i := range queues {
		for _, m := range c.received(t, fmt.Sprint(hash, i)) {
			queue, known := queueOf[m.OrderingKey]
			require.True(t, !known || queue == i, "one queue per key")
			queueOf[m.OrderingKey] = i
			at := next[m.OrderingKey]
			require.Equal(t, fmt.Sprint(30*at+number(t, m.OrderingKey)), string(m.Payload))
			next[m.OrderingKey], total = at+1, total+1
		}
	}
	assert.Equal(t, 600, total)
}

func number(t *testing.T, key string) (n int) {
	t.Helper()
	_, err := fmt.Sscanf(key, "key-%d", &n)
	require.NoError(t, err)
	return n
}

// A write that gets stuck, since nobody takes the bytes, ends soon after the context.
func TestStuckWrite(t *testing.T) {
	t.Parallel()
	c := exchange(t, testenv.RabbitMQ(t), amqp.ExchangeTopic)
	destination := c.exchange + ".queue"
	c.bind(t, destination)
	uri, err := amqp.ParseURI(c.url)
	require.NoError(t, err)
	proxy := toxic.Start(t, hostPort(uri))
	b := open(t, at(c.url, proxy.Addr(t)), rabbitmq.Settings{Exchange: c.exchange})
	msgs := many(destination, 30, 30)
	require.Equal(t, map[string]int{"": 30}, verdicts(b.Publish(t.Context(), msgs)))

	proxy.Bandwidth(t, 10)
	for i := range msgs {
		msgs[i].Payload = make([]byte, 1<<20)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	results := b.Publish(ctx, msgs)
	require.ErrorIs(t, results[0].Err, context.DeadlineExceeded, "which ends it")
	got := verdicts(results)
	assert.Positive(t, got["unavailable broker"], "%v", got)
	assert.Positive(t, got["not_sent"], "%v", got)
	assert.Equal(t, len(msgs), got["unavailable broker"]+got["not_sent"], "%v", got)
	proxy.Heal(t)
	for i := range msgs {
		msgs[i].Payload = nil
	}
	assert.Eventually(t, func() bool { return verdicts(b.Publish(t.Context(), msgs))[""] == len(msgs) }, time.Minute, 10*time.Millisecond,
		"over a new connection, once the stuck one is closed")
}

// Callers do not end each other: one whose context ends takes nothing from one who goes on.
func TestNeighbours(t *testing.T) {
	t.Parallel()
	c := exchange(t, testenv.RabbitMQ(t), amqp.ExchangeTopic)
	destination := c.exchange + ".queue"
	c.bind(t, destination)
	b := open(t, c.url, rabbitmq.Settings{Exchange: c.exchange})
	finished := make(chan []brokers.Result)
	go func() { finished <- b.Publish(t.Context(), many(destination, 4000, 40)) }()
	for range 50 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		b.Publish(ctx, many(destination, 500, 50))
		cancel()
	}
	assert.Equal(t, map[string]int{"": 4000}, verdicts(<-finished))
}
