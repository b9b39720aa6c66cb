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
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/kafka"
	"github.com/gorm-fanout/fanout/brokers/nats"
	"github.com/gorm-fanout/fanout/brokers/rabbitmq"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
)

// destination is a kind of broker, with one stream at a time.
type destination interface {
	prepare(ctx context.Context, stream string) error
	// open opens Fanout's broker.
	open(stream string) (brokers.Broker, error)
	// publisher publishes as one would by hand with the same client, until the destination is closed.
	publisher(ctx context.Context, stream string) (publisher, error)
	// check fails unless the first n messages arrived. Where a stream cannot be read back, the
	// conformance suite of the broker looks at the messages.
	check(ctx context.Context, stream string, n int, ordered bool) error
	remove(ctx context.Context, stream string) error
	close(ctx context.Context) error
}

func openDestination(ctx context.Context, o *Options, name string) (destination, error) {
	switch name {
	case "redis":
		return openRedis(ctx, o)
	case "rabbitmq":
		return openRabbit(o)
	case "nats":
		return openJetStream(o) //nolint:contextcheck // the server outlives the call
	case "kafka":
		return openKafka(o)
	case "memory":
		return &memory{}, nil
	default:
		return nil, fmt.Errorf("broker %q: use redis, rabbitmq, nats, kafka or memory", name)
	}
}

// memory is a broker in this process.
type memory struct{ *recorder }

func (d *memory) prepare(context.Context, string) error {
	d.recorder = &recorder{}
	return nil
}

func (d *memory) open(string) (brokers.Broker, error) { return d.recorder, nil }

func (d *memory) publisher(context.Context, string) (publisher, error) {
	publish := func(ctx context.Context, messages []*message) error {
		batch := make([]brokers.Message, len(messages))
		for i, m := range messages {
			batch[i].ID = m.id
		}
		d.Publish(ctx, batch)
		return nil
	}
	return publish, nil
}

func (d *memory) check(_ context.Context, _ string, n int, ordered bool) error {
	return check(d.noted(), 1, n, ordered)
}

func (*memory) remove(context.Context, string) error { return nil }
func (*memory) close(context.Context) error          { return nil }

// redisStreams are streams of a Redis.
type redisStreams struct {
	url    string
	client *redis.Client
}

func openRedis(ctx context.Context, o *Options) (*redisStreams, error) {
	url, err := serverDSN("FANOUT_TEST_REDIS")
	if err != nil {
		return nil, err
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, errors.New("FANOUT_TEST_REDIS is not a URL: use one like redis://user:password@host:port/0")
	}
	d := &redisStreams{url: url, client: redis.NewClient(options)}
	info, err := d.client.InfoMap(ctx, "server").Result()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reach Redis: %w", err), d.client.Close())
	}
	o.Report.Servers["redis"] = info["Server"]["redis_version"]
	return d, nil
}

func (d *redisStreams) prepare(ctx context.Context, stream string) error {
	return d.remove(ctx, stream)
}

func (d *redisStreams) open(string) (brokers.Broker, error) {
	return redisstreams.Open(redisstreams.Settings{URL: adapter.Secret(d.url)})
}

// publisher adds messages by pipelines of plain XADDs.
func (d *redisStreams) publisher(_ context.Context, stream string) (publisher, error) {
	const chunk = 100
	publish := func(ctx context.Context, messages []*message) error {
		for at := 0; at < len(messages); at += chunk {
			pipe := d.client.Pipeline()
			for _, m := range messages[at:min(at+chunk, len(messages))] {
				if m.xadd == nil {
					m.xadd = []any{"xadd", stream, "*", "data", &m.payload, "id", &m.id, "type", &m.kind, "headers", &m.headers}
				}
				_ = pipe.Process(ctx, redis.NewStringCmd(ctx, m.xadd...)) // it only queues
			}
			if _, err := pipe.Exec(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	return publish, nil
}

func (d *redisStreams) check(ctx context.Context, stream string, n int, ordered bool) error {
	const page = 2000
	var arrivals []arrival
	for after := "-"; ; {
		entries, err := d.client.XRangeN(ctx, stream, after, "+", page).Result()
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			return check(arrivals, 1, n, ordered)
		}
		for _, entry := range entries {
			id, _ := entry.Values["id"].(string)
			key, _ := entry.Values["ordering_key"].(string)
			number, err := fixture.Number(id)
			if err != nil {
				return err
			}
			arrivals = append(arrivals, arrival{number: number, key: key})
		}
		after = "(" + entries[len(entries)-1].ID
	}
}

func (d *redisStreams) remove(ctx context.Context, stream string) error {
	return d.client.Unlink(ctx, stream).Err()
}

func (d *redisStreams) close(context.Context) error { return d.client.Close() }

// remote is part of a destination whose streams are not read back.
type remote struct {
	ends []func() // of the connections of publishers by hand
}

func (*remote) check(context.Context, string, int, bool) error { return nil }

func (r *remote) end() {
	for _, end := range r.ends {
		end()
	}
}

// rabbit is an exchange with a queue for each stream.
type rabbit struct {
	remote

	url     string
	conn    *amqp.Connection
	channel *amqp.Channel
}

const benchExchange = "fanout-bench"

func openRabbit(o *Options) (*rabbit, error) {
	url, err := serverDSN("FANOUT_TEST_RABBITMQ")
	if err != nil {
		return nil, err
	}
	d := &rabbit{url: url}
	if d.conn, err = amqp.Dial(url); err != nil {
		return nil, err
	}
	o.Report.Servers["rabbitmq"], _ = d.conn.Properties["version"].(string)
	if d.channel, err = d.conn.Channel(); err == nil {
		err = d.channel.ExchangeDeclare(benchExchange, amqp.ExchangeTopic, true, false, false, false, nil)
	}
	if err != nil {
		return nil, errors.Join(err, d.conn.Close())
	}
	return d, nil
}

func (d *rabbit) prepare(_ context.Context, stream string) error {
	if _, err := d.channel.QueueDeclare(stream, true, false, false, false, nil); err != nil {
		return err
	}
	return d.channel.QueueBind(stream, stream, benchExchange, false, nil)
}

func (d *rabbit) open(string) (brokers.Broker, error) {
	return rabbitmq.Open(rabbitmq.Settings{URL: adapter.Secret(d.url), Exchange: benchExchange})
}

func (d *rabbit) publisher(_ context.Context, stream string) (publisher, error) {
	conn, err := amqp.Dial(d.url) // channels of one connection take turns
	if err != nil {
		return nil, err
	}
	d.ends = append(d.ends, func() { _ = conn.Close() })
	channel, err := conn.Channel()
	if err == nil {
		err = channel.Confirm(false)
	}
	if err != nil {
		return nil, err
	}
	publish := func(ctx context.Context, messages []*message) (err error) {
		confirmations := make([]*amqp.DeferredConfirmation, len(messages))
		for i, m := range messages {
			publishing := amqp.Publishing{
				MessageId: m.id, Type: m.kind, DeliveryMode: amqp.Persistent, ContentType: brokers.DefaultContentType,
				Headers: amqp.Table{"headers": m.headers}, Body: []byte(m.payload),
			}
			if confirmations[i], err = channel.PublishWithDeferredConfirmWithContext(ctx, benchExchange, stream, true, false, publishing); err != nil {
				return err
			}
		}
		for _, confirmation := range confirmations {
			if acked, err := confirmation.WaitContext(ctx); err != nil || !acked {
				return errors.Join(err, errors.New("scenario: RabbitMQ did not take a message"))
			}
		}
		return nil
	}
	return publish, nil
}

func (d *rabbit) remove(_ context.Context, stream string) error {
	_, err := d.channel.QueueDelete(stream, false, false, false)
	return err
}

func (d *rabbit) close(context.Context) error {
	d.end()
	return errors.Join(d.channel.ExchangeDelete(benchExchange, false, false), d.conn.Close())
}

// jetStream has streams on the disk of a server in this process.
type jetStream struct {
	remote

	dir    string
	server *server.Server
	conn   *natsclient.Conn
	js     jetstream.JetStream
}

func openJetStream(o *Options) (_ *jetStream, err error) {
	d := &jetStream{}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close(context.Background()))
		}
	}()
	if d.dir, err = os.MkdirTemp("", "fanout-bench-nats-"); err != nil {
		return nil, err
	}
	if d.server, err = server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: d.dir, NoLog: true, NoSigs: true}); err != nil {
		return nil, err
	}
	d.server.Start()
	if !d.server.ReadyForConnections(time.Minute) {
		return nil, errors.New("scenario: the NATS server did not start")
	}
	if d.conn, err = natsclient.Connect(d.server.ClientURL()); err != nil {
		return nil, err
	}
	o.Report.Servers["nats"] = server.VERSION + " in this process"
	d.js, err = jetstream.New(d.conn)
	return d, err
}

func (d *jetStream) prepare(ctx context.Context, stream string) error {
	_, err := d.js.CreateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{stream}})
	return err
}

func (d *jetStream) open(string) (brokers.Broker, error) {
	return nats.Open(nats.Settings{URL: adapter.Secret(d.server.ClientURL())})
}

func (d *jetStream) publisher(_ context.Context, stream string) (publisher, error) {
	conn, err := natsclient.Connect(d.server.ClientURL())
	if err != nil {
		return nil, err
	}
	d.ends = append(d.ends, conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, err
	}
	publish := func(ctx context.Context, messages []*message) (err error) {
		acks := make([]jetstream.PubAckFuture, len(messages))
		for i, m := range messages {
			header := natsclient.Header{jetstream.MsgIDHeader: {m.id}, "id": {m.id}, "type": {m.kind}, "headers": {m.headers}}
			if acks[i], err = js.PublishMsgAsync(&natsclient.Msg{Subject: stream, Data: []byte(m.payload), Header: header}); err != nil {
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
	return publish, nil
}

func (d *jetStream) remove(ctx context.Context, stream string) error {
	return d.js.DeleteStream(ctx, stream)
}

func (d *jetStream) close(context.Context) error {
	d.end()
	if d.conn != nil {
		d.conn.Close()
	}
	if d.server != nil {
		d.server.Shutdown()
		d.server.WaitForShutdown()
	}
	return os.RemoveAll(d.dir)
}

// kafkaTopics are topics of the fake cluster of Kafka's client, in this process.
type kafkaTopics struct {
	remote

	fake  *kfake.Cluster
	admin *kadm.Client
}

func openKafka(o *Options) (*kafkaTopics, error) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		return nil, err
	}
	o.Report.Servers["kafka"] = "kfake in this process"
	client, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...))
	if err != nil {
		fake.Close()
		return nil, err
	}
	return &kafkaTopics{fake: fake, admin: kadm.NewClient(client)}, nil
}

func (d *kafkaTopics) prepare(ctx context.Context, stream string) error {
	const partitions = 6
	_, err := d.admin.CreateTopic(ctx, partitions, -1, nil, stream)
	return err
}

func (d *kafkaTopics) open(string) (brokers.Broker, error) {
	return kafka.Open(kafka.Settings{BootstrapServers: strings.Join(d.fake.ListenAddrs(), ",")})
}

func (d *kafkaTopics) publisher(_ context.Context, stream string) (publisher, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(d.fake.ListenAddrs()...), kgo.DefaultProduceTopic(stream), kgo.ProducerLinger(0))
	if err != nil {
		return nil, err
	}
	d.ends = append(d.ends, client.Close)
	publish := func(ctx context.Context, messages []*message) error {
		records := make([]*kgo.Record, len(messages))
		for i, m := range messages {
			records[i] = &kgo.Record{Value: []byte(m.payload), Headers: []kgo.RecordHeader{
				{Key: "id", Value: []byte(m.id)}, {Key: "type", Value: []byte(m.kind)}, {Key: "headers", Value: []byte(m.headers)},
			}}
		}
		return client.ProduceSync(ctx, records...).FirstErr()
	}
	return publish, nil
}

func (d *kafkaTopics) remove(ctx context.Context, stream string) error {
	_, err := d.admin.DeleteTopics(ctx, stream)
	return err
}

func (d *kafkaTopics) close(context.Context) error {
	d.end()
	d.admin.Close()
	d.fake.Close()
	return nil
}
