package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/kafka"
	"github.com/gorm-fanout/fanout/brokers/nats"
	"github.com/gorm-fanout/fanout/brokers/rabbitmq"
)

// Names of what a backlog can be drained to.
const (
	toRedis    = "redis"
	toRabbitMQ = "rabbitmq"
	toNATS     = "nats"
	toKafka    = "kafka"
)

// elsewhere is a broker other than Redis, with one place at a time for messages.
type elsewhere interface {
	// prepare makes the place of a stream.
	prepare(ctx context.Context, stream string) error
	// broker opens Fanout's broker for it.
	broker() (brokers.Broker, error)
	// byHand opens a publisher as one would write it on the same client: it sends a chunk, and waits
	// until all of it is confirmed.
	byHand(ctx context.Context, stream string) (publish func(context.Context, []*handSlot) error, end func() error, err error)
	// count is how many messages stand there.
	count(ctx context.Context, stream string) (int64, error)
	// remove removes the place.
	remove(ctx context.Context, stream string) error
	close() error
}

// openElsewhere is nil for Redis.
func (o *Options) openElsewhere(ctx context.Context, name string) (elsewhere, error) {
	switch name {
	case toRabbitMQ:
		return openRabbit(o)
	case toNATS:
		return openJetStream(ctx, o)
	case toKafka:
		return openKafka(ctx, o)
	default:
		return nil, nil //nolint:nilnil // as it says
	}
}

// rabbit is a queue of the server.
type rabbit struct {
	url  string
	conn *amqp.Connection
}

func openRabbit(o *Options) (elsewhere, error) {
	conn, err := amqp.Dial(o.RabbitMQ)
	if err != nil {
		return nil, err
	}
	o.Report.Servers["RabbitMQ"], _ = conn.Properties["version"].(string)
	return &rabbit{url: o.RabbitMQ, conn: conn}, nil
}

const benchExchange = "fanout-bench"

// withChannel runs f on a channel of its own.
func (r *rabbit) withChannel(f func(*amqp.Channel) error) error {
	channel, err := r.conn.Channel()
	if err != nil {
		return err
	}
	return errors.Join(f(channel), channel.Close())
}

func (r *rabbit) prepare(_ context.Context, stream string) error {
	return r.withChannel(func(channel *amqp.Channel) error {
		if err := channel.ExchangeDeclare(benchExchange, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
			return err
		}
		if _, err := channel.QueueDeclare(stream, true, false, false, false, nil); err != nil {
			return err
		}
		return channel.QueueBind(stream, stream, benchExchange, false, nil)
	})
}

func (r *rabbit) broker() (brokers.Broker, error) {
	return rabbitmq.Open(rabbitmq.Settings{URL: adapter.Secret(r.url), Exchange: benchExchange})
}

func (r *rabbit) byHand(_ context.Context, stream string) (publish func(context.Context, []*handSlot) error, end func() error, err error) {
	conn, err := amqp.Dial(r.url)
	if err != nil {
		return nil, nil, err
	}
	channel, err := conn.Channel()
	if err == nil {
		err = channel.Confirm(false)
	}
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	publish = func(ctx context.Context, slots []*handSlot) error {
		confirmations := make([]*amqp.DeferredConfirmation, len(slots))
		for i, slot := range slots {
			m := amqp.Publishing{
				MessageId: slot.id, Type: slot.kind, DeliveryMode: amqp.Persistent, ContentType: brokers.DefaultContentType,
				Headers: amqp.Table{"headers": slot.headers}, Body: []byte(slot.payload),
			}
			if confirmations[i], err = channel.PublishWithDeferredConfirmWithContext(ctx, benchExchange, stream, true, false, m); err != nil {
				return err
			}
		}
		for _, confirmation := range confirmations {
			if acked, err := confirmation.WaitContext(ctx); err != nil || !acked {
				return fmt.Errorf("scenario: RabbitMQ did not take a message: %w", err)
			}
		}
		return nil
	}
	return publish, conn.Close, nil
}

func (r *rabbit) count(_ context.Context, stream string) (n int64, err error) {
	err = r.withChannel(func(channel *amqp.Channel) error {
		queue, err := channel.QueueDeclarePassive(stream, true, false, false, false, nil)
		n = int64(queue.Messages)
		return err
	})
	return n, err
}

func (r *rabbit) remove(_ context.Context, stream string) error {
	return r.withChannel(func(channel *amqp.Channel) error {
		_, err := channel.QueueDelete(stream, false, false, false)
		return err
	})
}

func (r *rabbit) close() error {
	return errors.Join(r.withChannel(func(channel *amqp.Channel) error { return channel.ExchangeDelete(benchExchange, false, false) }), r.conn.Close())
}

// jetStream is a stream on disk of a server in this process.
type jetStream struct {
	server *server.Server
	dir    string
	conn   *natsclient.Conn
	js     jetstream.JetStream
}

func openJetStream(_ context.Context, o *Options) (elsewhere, error) {
	dir, err := os.MkdirTemp("", "fanout-bench-nats-")
	if err != nil {
		return nil, err
	}
	n := &jetStream{dir: dir}
	if n.server, err = server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true}); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	n.server.Start()
	if !n.server.ReadyForConnections(10 * time.Second) {
		return nil, errors.Join(errors.New("scenario: the NATS server did not start"), n.close())
	}
	if n.conn, err = natsclient.Connect(n.server.ClientURL()); err != nil {
		return nil, errors.Join(err, n.close())
	}
	if n.js, err = jetstream.New(n.conn); err != nil {
		return nil, errors.Join(err, n.close())
	}
	o.Report.Servers["NATS"] = server.VERSION + " in this process"
	return n, nil
}

func (n *jetStream) prepare(ctx context.Context, stream string) error {
	_, err := n.js.CreateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{stream}})
	return err
}

func (n *jetStream) broker() (brokers.Broker, error) {
	return nats.Open(nats.Settings{URL: adapter.Secret(n.server.ClientURL())})
}

func (n *jetStream) byHand(_ context.Context, stream string) (publish func(context.Context, []*handSlot) error, end func() error, err error) {
	conn, err := natsclient.Connect(n.server.ClientURL())
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, nil, err
	}
	publish = func(ctx context.Context, slots []*handSlot) error {
		acks := make([]jetstream.PubAckFuture, len(slots))
		for i, slot := range slots {
			m := &natsclient.Msg{Subject: stream, Data: []byte(slot.payload), Header: natsclient.Header{
				jetstream.MsgIDHeader: {slot.id}, "id": {slot.id}, "type": {slot.kind}, "headers": {slot.headers},
			}}
			if acks[i], err = js.PublishMsgAsync(m); err != nil {
				return err
			}
		}
		for _, ack := range acks {
			select {
			case <-ack.Ok():
			case err := <-ack.Err():
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
	return publish, func() error { conn.Close(); return nil }, nil
}

func (n *jetStream) count(ctx context.Context, stream string) (int64, error) {
	s, err := n.js.Stream(ctx, stream)
	if err != nil {
		return 0, err
	}
	return int64(s.CachedInfo().State.Msgs), nil //nolint:gosec // far less
}

func (n *jetStream) remove(ctx context.Context, stream string) error {
	return n.js.DeleteStream(ctx, stream)
}

func (n *jetStream) close() error {
	if n.conn != nil {
		n.conn.Close()
	}
	n.server.Shutdown()
	n.server.WaitForShutdown()
	return os.RemoveAll(n.dir)
}

// fakeKafka is a topic of the fake cluster of Kafka's client, in this process, or of the cluster that
// the variable names.
type fakeKafka struct {
	fake    *kfake.Cluster
	servers []string
	admin   *kadm.Client
}

const (
	kafkaVariable   = "FANOUT_TEST_KAFKA"
	kafkaPartitions = 6
)

func openKafka(_ context.Context, o *Options) (elsewhere, error) {
	k := &fakeKafka{}
	if named := os.Getenv(kafkaVariable); named != "" {
		k.servers = strings.Split(named, ",")
		o.Report.Servers["Kafka"] = named
	} else {
		fake, err := kfake.NewCluster(kfake.NumBrokers(1))
		if err != nil {
			return nil, err
		}
		k.fake, k.servers = fake, fake.ListenAddrs()
		o.Report.Servers["Kafka"] = "kfake in this process"
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(k.servers...))
	if err != nil {
		return nil, err
	}
	k.admin = kadm.NewClient(client)
	return k, nil
}

func (k *fakeKafka) prepare(ctx context.Context, stream string) error {
	_, err := k.admin.CreateTopic(ctx, kafkaPartitions, -1, nil, stream)
	return err
}

func (k *fakeKafka) broker() (brokers.Broker, error) {
	return kafka.Open(kafka.Settings{BootstrapServers: strings.Join(k.servers, ",")})
}

func (k *fakeKafka) byHand(_ context.Context, stream string) (publish func(context.Context, []*handSlot) error, end func() error, err error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(k.servers...), kgo.DefaultProduceTopic(stream), kgo.ProducerLinger(0))
	if err != nil {
		return nil, nil, err
	}
	publish = func(ctx context.Context, slots []*handSlot) error {
		records := make([]*kgo.Record, len(slots))
		for i, slot := range slots {
			records[i] = &kgo.Record{Value: []byte(slot.payload), Headers: []kgo.RecordHeader{
				{Key: "id", Value: []byte(slot.id)}, {Key: "type", Value: []byte(slot.kind)}, {Key: "headers", Value: []byte(slot.headers)},
			}}
		}
		return client.ProduceSync(ctx, records...).FirstErr()
	}
	return publish, func() error { client.Close(); return nil }, nil
}

func (k *fakeKafka) count(ctx context.Context, stream string) (n int64, err error) {
	ends, err := k.admin.ListEndOffsets(ctx, stream)
	if err != nil {
		return 0, err
	}
	ends.Each(func(end kadm.ListedOffset) { n += end.Offset })
	return n, ends.Error()
}

func (k *fakeKafka) remove(ctx context.Context, stream string) error {
	_, err := k.admin.DeleteTopics(ctx, stream)
	return err
}

func (k *fakeKafka) close() error {
	k.admin.Close()
	if k.fake != nil {
		k.fake.Close()
	}
	return nil
}
