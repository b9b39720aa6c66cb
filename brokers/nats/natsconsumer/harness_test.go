package natsconsumer

import (
	"cmp"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/brokertest"
	natsbroker "github.com/gorm-fanout/fanout/brokers/nats"
	"github.com/gorm-fanout/fanout/brokers/nats/internal/natsprocess"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumertest"
)

func TestMain(m *testing.M) {
	natsprocess.Main()
	if url := os.Getenv(frozenVariable); url != "" {
		frozen(url)
	}
	consumertest.Main(m, func(source string, handler inbox.Handler) (consumertest.Consumer, error) {
		url, name, _ := strings.Cut(source, " ")
		conn, err := nats.Connect(url)
		if err != nil {
			return nil, err
		}
		return NewConsumer(conn, "ORDERING"+name, "billing", handler, hurried(Config{}))
	},
		// A queue of the server in the process is closed some time after the server has shut down.
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*Server).startGoRoutine.func1"))
}

func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("InProcess", func(t *testing.T) {
		t.Parallel()
		consumertest.Run(t, consumertest.Harness{
			Source: func(t *testing.T) *consumertest.Source { return startServer(t, jetstream.ConsumerConfig{}).source(t) },
		})
	})
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		nodes := natsprocess.Start(t, 3)
		consumertest.Run(t, consumertest.Harness{
			Source: func(t *testing.T) *consumertest.Source { return atProcesses(t, nodes).source(t) },
		})
	})
}

// hurried makes a consumer look more often, and log nothing unless it says where.
func hurried(config Config) Config {
	config.Log = cmp.Or(config.Log, silent)
	config.pace = pace{
		tick: 10 * time.Millisecond, probe: 20 * time.Millisecond, away: cmp.Or(config.pace.away, 100*time.Millisecond), gap: 15 * time.Second,
		fetch: 200 * time.Millisecond, answer: time.Second,
	}
	return config
}

// jetServer is a NATS server with JetStream in this process, or processes of their own, a stream, and
// a durable consumer.
type jetServer struct {
	url, addr string
	name      string // ends the names of streams and subjects where there are others beside them
	conn      *nats.Conn
	js        jetstream.JetStream
	broker    *natsbroker.Broker
}

func startServer(t testing.TB, config jetstream.ConsumerConfig) *jetServer {
	t.Helper()
	started, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
	})
	require.NoError(t, err)
	started.Start()
	t.Cleanup(func() {
		started.Shutdown()
		started.WaitForShutdown()
	})
	require.True(t, started.ReadyForConnections(time.Minute))
	s := &jetServer{url: started.ClientURL(), addr: started.Addr().String()}
	s.create(t, 1, config)
	return s
}

// create creates the streams, the durable consumer, and a broker.
func (s *jetServer) create(t testing.TB, replicas int, config jetstream.ConsumerConfig) {
	t.Helper()
	s.conn = s.connect(t, s.url)
	var err error
	s.js, err = jetstream.New(s.conn)
	require.NoError(t, err)
	for name, subject := range map[string]string{"ORDERING": "ordering", "DEAD": "dead"} {
		_, err = s.js.CreateStream(t.Context(), jetstream.StreamConfig{
			Name: name + s.name, Subjects: []string{subject + s.name + ".>"}, Duplicates: 100 * time.Millisecond, Replicas: replicas,
		})
		require.NoError(t, err)
	}
	config.Durable, config.AckPolicy = "billing", jetstream.AckExplicitPolicy
	if config.AckWait == 0 {
		config.AckWait = time.Second
	}
	_, err = s.js.CreateConsumer(t.Context(), "ORDERING"+s.name, config)
	require.NoError(t, err)
	s.broker, err = natsbroker.Open(natsbroker.Settings{URL: adapter.Secret(s.url)})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.broker.Close(context.Background())) })
}

func (s *jetServer) connect(t testing.TB, url string) *nats.Conn {
	t.Helper()
	conn, err := nats.Connect(url, nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true), nats.ReconnectWait(20*time.Millisecond),
		nats.PingInterval(500*time.Millisecond), nats.Timeout(time.Second),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	return conn
}

func (s *jetServer) source(t *testing.T) *consumertest.Source {
	t.Helper()
	var proxied string
	source := &consumertest.Source{
		Publish: s.publish, PublishForeign: s.publishForeign,
		Consumer: func(t *testing.T, handler inbox.Handler, settings *consumertest.Settings) consumertest.Consumer {
			url := s.url
			if settings.ThroughNetwork {
				url = "nats://" + proxied
			}
			config := Config{ConsumerConfig: settings.ConsumerConfig, Exclusive: settings.ThroughNetwork} // only so what a broken connection loses is missed
			if settings.HasDeadLetters {
				config.DeadLetters = inbox.Always("dead" + s.name + ".billing")
			}
			c, err := NewConsumer(s.connect(t, url), "ORDERING"+s.name, "billing", handler, hurried(config))
			require.NoError(t, err)
			return c
		},
		Unconfirmed: s.unconfirmed,
		Lease:       time.Second,
		DeadLetters: s.letters,
		Child:       s.url + " " + s.name,
	}
	if s.addr != "" {
		proxy := brokertest.StartProxy(t, s.addr)
		source.Network, proxied = proxy, proxy.Addr(t)
	}
	return source
}

// publish publishes as the relay does, through brokers/nats.
func (s *jetServer) publish(t *testing.T, messages ...consumertest.Message) {
	t.Helper()
	out := make([]brokers.Message, len(messages))
	for i, m := range messages {
		out[i] = brokers.Message{ID: m.ID, Destination: "ordering" + s.name + "::order", Type: m.Type, OrderingKey: m.Key, Payload: m.Payload}
		if i > 0 && m.ID == messages[i-1].ID { // a copy is to be stored: the window in which the server would drop it has to pass
			s.publish(t, messages[:i]...)
			time.Sleep(200 * time.Millisecond)
			s.publish(t, messages[i:]...)
			return
		}
	}
	for _, result := range s.broker.Publish(t.Context(), out) {
		require.NoError(t, result.Err)
	}
}

// publishForeign publishes as another program does.
func (s *jetServer) publishForeign(t *testing.T, key string, payload []byte, attributes map[string]string) {
	t.Helper()
	m := &nats.Msg{Subject: "ordering" + s.name + ".order", Data: payload, Header: nats.Header{inbox.FieldOrderingKey: {key}}}
	for name, value := range attributes {
		m.Header[name] = []string{value, "second of two"}
	}
	_, err := s.js.PublishMsg(t.Context(), m)
	require.NoError(t, err)
}

func (s *jetServer) unconfirmed(t *testing.T) int {
	t.Helper()
	durable, err := s.js.Consumer(t.Context(), "ORDERING"+s.name, "billing")
	require.NoError(t, err)
	info := durable.CachedInfo()
	return info.NumAckPending + int(info.NumPending)
}

// settled reports whether all that is in the stream was delivered and confirmed. What the server counts as
// pending and as unconfirmed can both be none for an instant while messages are on their way; what it has
// seen confirmed up to which place cannot.
func (s *jetServer) settled(t *testing.T) bool {
	t.Helper()
	stream, err := s.js.Stream(t.Context(), "ORDERING"+s.name)
	require.NoError(t, err)
	durable, err := stream.Consumer(t.Context(), "billing")
	require.NoError(t, err)
	info := durable.CachedInfo()
	return info.NumAckPending == 0 && info.NumPending == 0 && info.AckFloor.Stream >= stream.CachedInfo().State.LastSeq
}

func (s *jetServer) letters(t *testing.T) (all []consumertest.DeadLetter) {
	t.Helper()
	stream, err := s.js.Stream(t.Context(), "DEAD"+s.name)
	require.NoError(t, err)
	for n := range stream.CachedInfo().State.Msgs {
		m, err := stream.GetMsg(t.Context(), n+1)
		require.NoError(t, err)
		all = append(all, consumertest.DeadLetter{
			ID: m.Header.Get(brokers.FieldID), Key: m.Header.Get(brokers.FieldOrderingKey), Payload: m.Data,
			Reason: m.Header.Get(inbox.FieldDeadLetterReason), Attempts: m.Header.Get(inbox.FieldDeadLetterAttempts),
		})
	}
	return all
}
