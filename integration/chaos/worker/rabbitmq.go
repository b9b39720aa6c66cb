package worker

import (
	"context"
	"errors"
	"os"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/gorm-fanout/fanout/brokers/rabbitmq"
	"github.com/gorm-fanout/fanout/brokers/rabbitmq/rabbitmqconsumer"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
)

// prefetch is how many messages RabbitMQ gives out before it is told that the first are recorded.
const prefetch = 500

// observeRabbitMQ consumes a queue and records each message, over a new connection after each
// failure.
func observeRabbitMQ(ctx context.Context, ledger *scenario.Ledger) error {
	off, err := number(SkewVariable)
	if err != nil {
		return err
	}
	skew := time.Duration(off) * time.Second
	for ctx.Err() == nil {
		if err := consumeQueue(ctx, skew, ledger); err != nil {
			wait(ctx, readPatience/5)
		}
	}
	return ended(ledger, scenario.Line{})
}

// consumeQueue is the life of one connection. It confirms messages once they are recorded. The clock is
// off by skew.
func consumeQueue(ctx context.Context, skew time.Duration, ledger *scenario.Ledger) (err error) {
	conn, err := amqp.DialConfig(os.Getenv(ServerVariable), amqp.Config{Heartbeat: heartbeat})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	channel, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := channel.Qos(prefetch, 0, false); err != nil {
		return err
	}
	deliveries, err := channel.Consume(scenario.ObserverQueue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case d, open := <-deliveries:
			if !open {
				return amqp.ErrClosed
			}
			now := time.Now().Add(-skew)
			if err := ledger.Write(scenario.Line{Broker: scenario.RabbitMQ, Message: d.MessageId, At: now.UnixMilli()}); err != nil {
				return err
			}
			if err := d.Ack(false); err != nil {
				return err
			}
		}
	}
}

// projectRabbitMQ consumes the queue of the projections.
func projectRabbitMQ(p *projector, broker string, cfg config.Broker) error {
	consumer, err := rabbitmqconsumer.NewConsumer(settingsOf[*rabbitmq.Settings](cfg).URL.Reveal(), scenario.ProjectionQueue, p.handler,
		rabbitmqconsumer.Config{ConsumerConfig: configOf(broker)})
	p.consumers = append(p.consumers, consumer)
	return err
}
