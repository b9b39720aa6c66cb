//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
	"github.com/gorm-fanout/fanout/internal/testservers"
)

// rabbitMQServer gives every message to three queues: one for the observer, one for the projections,
// and one that is not read before the end. That is a quorum queue. A stream would be easier to
// read, and is no ledger: RabbitMQ 3.10 confirmed a message, just after a restart, that was in the
// other two queues and not in the stream.
var rabbitMQServer = &serverKind{
	name: "rabbitmq",
	start: func(ctx context.Context, s *fixture) (*server, error) {
		return s.startServer(ctx, func(ctx context.Context) (*testservers.Own, error) {
			node, err := testservers.OwnRabbitMQ(ctx, "raft.wal_max_size_bytes = 33554432") // read at each start
			if err != nil {
				return nil, err
			}
			return node.Own, nil
		}, testservers.RabbitMQVariable)
	},
	prepare: declareQueues,
	signals: map[Kind]syscall.Signal{RabbitMQTerm: syscall.SIGTERM, RabbitMQKill: syscall.SIGKILL},
	address: host,
	through: func(url, address string) string { return behind(url, address, "connection_timeout=2000") },
}

// queues are those of the exchange, by their arguments.
var queues = map[string]amqp.Table{
	scenario.LedgerQueue:     {amqp.QueueTypeArg: amqp.QueueTypeQuorum},
	scenario.ObserverQueue:   {amqp.QueueTypeArg: amqp.QueueTypeClassic},
	scenario.ProjectionQueue: {amqp.QueueTypeArg: amqp.QueueTypeQuorum, amqp.SingleActiveConsumerArg: true},
}

// declareQueues makes exchange and queues. On a server that the rig did not start, they are removed
// first, and in the end.
func declareQueues(_ context.Context, s *fixture, at *server) error {
	if !at.ours() {
		remove := func() error { return askRabbitMQ(at.url, removeQueues) }
		s.closers = append(s.closers, remove)
		if err := remove(); err != nil {
			return err
		}
	}
	return askRabbitMQ(at.url, func(channel *amqp.Channel) error {
		if err := channel.ExchangeDeclare(scenario.Exchange, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
			return err
		}
		for name, arguments := range queues {
			if _, err := channel.QueueDeclare(name, true, false, false, false, arguments); err != nil {
				return err
			}
			if err := channel.QueueBind(name, "#", scenario.Exchange, false, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

func removeQueues(channel *amqp.Channel) error {
	for name := range queues {
		if _, err := channel.QueueDelete(name, false, false, false); err != nil {
			return err
		}
	}
	return channel.ExchangeDelete(scenario.Exchange, false, false)
}

// askRabbitMQ talks to the server over a connection of its own.
func askRabbitMQ(url string, talk func(*amqp.Channel) error) (err error) {
	conn, err := amqp.DialConfig(url, amqp.Config{Heartbeat: 2 * time.Second})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.CloseDeadline(time.Now().Add(questionPatience))) }()
	channel, err := conn.Channel()
	if err != nil {
		return err
	}
	return talk(channel)
}

// readRabbitMQ reads the ledger from its beginning to a mark that it puts behind it itself, and empties
// it: of what is not confirmed, RabbitMQ gives out 2,000 messages and no more. When a message arrived,
// it does not tell.
func readRabbitMQ(ctx context.Context, s *servers, hold holder) error {
	const mark = "the end"
	ctx, cancel := context.WithTimeout(ctx, questionPatience)
	defer cancel()
	return askRabbitMQ(s.brokers[rabbitMQServer].url, func(channel *amqp.Channel) error {
		if err := channel.Confirm(false); err != nil {
			return err
		}
		end := amqp.Publishing{Type: mark, DeliveryMode: amqp.Persistent}
		confirmation, err := channel.PublishWithDeferredConfirmWithContext(ctx, "", scenario.LedgerQueue, true, false, end)
		if err != nil {
			return err
		}
		if acked, err := confirmation.WaitContext(ctx); err != nil || !acked {
			return fmt.Errorf("it does not take the end of its ledger: %w", err)
		}
		deliveries, err := channel.ConsumeWithContext(ctx, scenario.LedgerQueue, "", true, true, false, false, nil)
		if err != nil {
			return err
		}
		read := 0
		for d := range deliveries {
			if d.Type == mark {
				return nil
			}
			read++
			if err := hold(amqpFields(&d), d.Body, time.Time{}); err != nil {
				return err
			}
		}
		return errors.Join(fmt.Errorf("the ledger ends after %d messages", read), ctx.Err())
	})
}

// amqpFields are headers and properties, those that Fanout uses under the names of flat fields.
func amqpFields(d *amqp.Delivery) map[string]string {
	fields := map[string]string{}
	for name, value := range d.Headers {
		fields[name] = fmt.Sprint(value)
	}
	for name, value := range map[string]string{
		"id": d.MessageId, "type": d.Type, "content-type": d.ContentType, "correlation_id": d.CorrelationId,
		"property user-id": d.UserId, "property app-id": d.AppId, "property reply-to": d.ReplyTo, "property expiration": d.Expiration,
		"property content-encoding": d.ContentEncoding,
	} {
		if value != "" {
			fields[name] = value
		}
	}
	return fields
}
