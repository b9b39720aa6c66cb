package rabbitmq_test

import (
	"context"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/rabbitmq"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/toxic"
)

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
	assert.Equal(t, map[string]int{"": 30}, verdicts(b.Publish(t.Context(), msgs)), "over a new connection")
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
