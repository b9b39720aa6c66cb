//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
	"github.com/gorm-fanout/fanout/internal/testservers"
)

// rabbitMQServer gives every message to three queues, of the three types that RabbitMQ has: one for
// the observer, one for the projections, and a stream, which keeps what was read.
var rabbitMQServer = &serverKind{
	name: "rabbitmq",
	start: func(ctx context.Context, s *fixture) (*server, error) {
		return s.startServer(ctx, func(ctx context.Context) (*testservers.Own, error) {
			node, err := testservers.OwnRabbitMQ(ctx, "raft.wal_max_size_bytes = 33554432") // which are read at each start
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
	scenario.LedgerQueue:     {amqp.QueueTypeArg: amqp.QueueTypeStream},
	scenario.ObserverQueue:   {amqp.QueueTypeArg: amqp.QueueTypeClassic},
	scenario.ProjectionQueue: {amqp.QueueTypeArg: amqp.QueueTypeQuorum, amqp.SingleActiveConsumerArg: true},
}

// declareQueues makes exchange and queues, and begins to note when messages arrive. On a server that
// the rig did not start, they are removed first, and in the end.
func declareQueues(ctx context.Context, s *fixture, at *server) error {
	if at.own == nil {
		remove := func() error { return askRabbitMQ(at.url, removeQueues) }
		s.closers = append(s.closers, remove)
		if err := remove(); err != nil {
			return err
		}
	}
	if err := askRabbitMQ(at.url, func(channel *amqp.Channel) error {
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
	}); err != nil {
		return err
	}
	s.servers.arrivals = &arrivals{}
	following, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() { defer close(done); s.servers.arrivals.follow(following, at.url) }()
	s.closers = append(s.closers, func() error { cancel(); <-done; return nil })
	return nil
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

// streamOffset is the header with a message's place in a stream, and the argument that says where to
// begin.
const streamOffset = "x-stream-offset"

// arrivals are the times at which messages came to the ledger, by their place in it. RabbitMQ does
// not tell.
type arrivals struct {
	mu sync.Mutex
	at []time.Time
}

// follow notes them until ctx ends, across all outages of the server.
func (a *arrivals) follow(ctx context.Context, url string) {
	for ctx.Err() == nil {
		_ = askRabbitMQ(url, func(channel *amqp.Channel) error { // it is tried again
			return followQueue(ctx, channel, int64(len(a.at)), func(*amqp.Delivery) (bool, error) {
				a.mu.Lock()
				defer a.mu.Unlock()
				a.at = append(a.at, time.Now())
				return true, nil
			})
		})
		pauseFor(ctx, 200*time.Millisecond)
	}
}

// of is when the message at a place arrived; the zero time where that was not noted.
func (a *arrivals) of(place int) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if place >= len(a.at) {
		return time.Time{}
	}
	return a.at[place]
}

// followQueue reads the ledger from a place until f has seen enough or ctx ends.
func followQueue(ctx context.Context, channel *amqp.Channel, from int64, f func(*amqp.Delivery) (more bool, err error)) error {
	const window = 1000
	if err := channel.Qos(window, 0, false); err != nil {
		return err
	}
	deliveries, err := channel.ConsumeWithContext(ctx, scenario.LedgerQueue, "", false, false, false, false, amqp.Table{streamOffset: from})
	if err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case d, open := <-deliveries:
			if !open {
				return amqp.ErrClosed
			}
			switch place, _ := d.Headers[streamOffset].(int64); {
			case place < from: // the rest of what the server keeps together with the first
			case place > from:
				return fmt.Errorf("chaos: the ledger of RabbitMQ goes from %d to %d", from, place)
			default:
				from++
				if more, err := f(&d); !more || err != nil {
					return err
				}
			}
			if err := d.Ack(false); err != nil { // which lets it send more
				return err
			}
		}
	}
}

// readRabbitMQ reads the ledger from its beginning to a mark that it puts there itself.
func readRabbitMQ(ctx context.Context, s *servers, hold holder) error {
	const mark = "the end"
	ctx, cancel := context.WithTimeout(ctx, questionPatience)
	defer cancel()
	return askRabbitMQ(s.brokers[rabbitMQServer].url, func(channel *amqp.Channel) error {
		if err := channel.Confirm(false); err != nil {
			return err
		}
		confirmation, err := channel.PublishWithDeferredConfirmWithContext(ctx, "", scenario.LedgerQueue, true, false, amqp.Publishing{Type: mark, DeliveryMode: amqp.Persistent})
		if err != nil {
			return err
		}
		if acked, err := confirmation.WaitContext(ctx); err != nil || !acked {
			return errors.Join(err, errors.New("chaos: RabbitMQ did not take the end of its ledger"))
		}
		place := 0
		return followQueue(ctx, channel, 0, func(d *amqp.Delivery) (bool, error) {
			if d.Type == mark {
				return false, nil
			}
			at := s.arrivals.of(place)
			place++
			return true, hold(amqpFields(d), d.Body, at)
		})
	})
}

// amqpFields are headers and properties, those that Fanout uses under the names of flat fields.
func amqpFields(d *amqp.Delivery) map[string]string {
	fields := map[string]string{}
	for name, value := range d.Headers {
		fields[name] = fmt.Sprint(value)
	}
	delete(fields, streamOffset)
	for name, value := range map[string]string{
		"id": d.MessageId, "type": d.Type, "content_type": d.ContentType, "correlation_id": d.CorrelationId,
		"property user-id": d.UserId, "property app-id": d.AppId, "property reply-to": d.ReplyTo, "property expiration": d.Expiration,
		"property content-encoding": d.ContentEncoding,
	} {
		if value != "" {
			fields[name] = value
		}
	}
	return fields
}
