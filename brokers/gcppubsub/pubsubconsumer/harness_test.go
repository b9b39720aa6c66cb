package pubsubconsumer

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	apiv1 "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/google/uuid"
	"github.com/googleapis/gax-go/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/gorm-fanout/fanout/brokers/brokertest"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumertest"
)

func TestMain(m *testing.M) {
	consumertest.Main(m, func(source string, handler inbox.Handler) (consumertest.Consumer, error) {
		addr, subscription, _ := strings.Cut(source, " ")
		client, err := pubsub.NewClientWithConfig(context.Background(), project, impatient(), clientOptions(addr)...)
		if err != nil {
			return nil, err
		}
		return NewConsumer(client, subscription, handler, Config{ConsumerConfig: inbox.ConsumerConfig{Log: silent()}})
	},
		// Started by the import of a metrics library that Google's clients use, for the life of the
		// process.
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"),
		// It notices the end of its subscriber when its next tick comes, within ten seconds.
		goleak.IgnoreTopFunction("cloud.google.com/go/pubsub/v2.(*messageIterator).streamKeepAliveHandler"),
		// It repeats the last confirmations for a minute where a test has ended the server. Run does not wait for that.
		goleak.IgnoreAnyFunction("cloud.google.com/go/pubsub/v2.(*Subscriber).Receive"),
		goleak.IgnoreAnyFunction("cloud.google.com/go/pubsub/v2.(*Subscriber).Receive.func2"),
		goleak.IgnoreAnyFunction("cloud.google.com/go/pubsub/v2.(*Subscriber).Receive.func3"),
		goleak.IgnoreAnyFunction("cloud.google.com/go/pubsub/v2.(*messageIterator).sender"),
		goleak.IgnoreAnyFunction("cloud.google.com/go/pubsub/v2/apiv1.(*subscriptionAdminGRPCClient).Acknowledge"))
}

func TestConformance(t *testing.T) {
	t.Parallel()
	kinds := map[string]consumertest.Harness{
		"Fake": {OneOfAKey: true, Source: func(t *testing.T) *consumertest.Source { return newServer(t).source(t) }},
		// Claims of a process that is gone end with their lease of 10 s, which no test can shorten. A message that is
		// given back comes again behind all others of its key, and a key moves between streams: Pub/Sub does neither.
		"Emulator": {
			Patience: 3 * time.Minute, Shuffles: true, OneOfAKey: true,
			Source: func(t *testing.T) *consumertest.Source { return newEmulator(t).source(t) },
		},
	}
	for kind, harness := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			if kind == "Emulator" {
				emulatorAddress(t)
			}
			consumertest.Run(t, harness)
		})
	}
}

func (s *server) source(t *testing.T) *consumertest.Source {
	t.Helper()
	proxy := brokertest.StartProxy(t, s.Addr)
	return &consumertest.Source{
		Publish: func(_ *testing.T, messages ...consumertest.Message) {
			for _, m := range messages {
				s.PublishOrdered(topic, m.Payload, map[string]string{"id": m.ID, "type": m.Type}, m.Key)
			}
		},
		PublishForeign: func(_ *testing.T, key string, payload []byte, attributes map[string]string) {
			s.PublishOrdered(topic, payload, attributes, key)
		},
		Consumer: func(t *testing.T, handler inbox.Handler, settings *consumertest.Settings) consumertest.Consumer {
			addr := s.Addr
			if settings.ThroughNetwork {
				addr = proxy.Addr(t)
			}
			config := Config{ConsumerConfig: settings.ConsumerConfig}
			if settings.HasDeadLetters {
				config.DeadLetters = inbox.Always("orders-dead")
			}
			c := hurried(t, newClient(t, addr), handler, config)
			c.pace.grace = time.Second
			return c
		},
		Unconfirmed: func(*testing.T) int { return len(s.unacked()) },
		DeadLetters: func(*testing.T) (all []consumertest.DeadLetter) {
			for _, m := range s.letters() {
				all = append(all, consumertest.DeadLetter{
					ID: m.Attributes["id"], Key: m.OrderingKey, Payload: m.Data,
					Reason: m.Attributes[inbox.FieldDeadLetterReason], Attempts: m.Attributes[inbox.FieldDeadLetterAttempts],
				})
			}
			return all
		},
		Network: proxy,
		Expire:  func(*testing.T) { s.pass(DefaultLease + time.Second) },
		Child:   s.Addr + " " + name,
	}
}

const (
	project = "acme"
	topic   = "projects/" + project + "/topics/orders"
	dead    = "projects/" + project + "/topics/orders-dead"
	name    = "projects/" + project + "/subscriptions/billing"
)

// quick is how retries go in tests.
var quick = inbox.Retry{BaseDelay: time.Millisecond, MaxDelay: 5 * time.Millisecond, MaxAttempts: 3}

// server is a fake Pub/Sub with a topic, a topic of dead letters and a subscription.
type server struct {
	*pstest.Server
	Addr    string       // of a front of our own
	sending sync.Mutex   // the fake changes a message that it delivers again, perhaps while it is being sent
	offset  atomic.Int64 // by which its clock goes before ours
	mu      sync.Mutex   // the fake fills in what it hands out, each time anew
}

// all are the messages of all topics, as they are now.
func (s *server) all() (found []pstest.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.Messages() {
		found = append(found, copyOf(m))
	}
	return found
}

// find returns a message, as it is now.
func (s *server) find(id string) pstest.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return copyOf(s.Message(id))
}

// copyOf leaves out the figures that the fake goes on counting with.
func copyOf(m *pstest.Message) pstest.Message {
	return pstest.Message{
		ID: m.ID, Data: m.Data, Attributes: m.Attributes, PublishTime: m.PublishTime, OrderingKey: m.OrderingKey, Topic: m.Topic,
		Deliveries: m.Deliveries, Acks: m.Acks, Modacks: m.Modacks,
	}
}

func newServer(t testing.TB, change ...func(*pubsubpb.Subscription)) *server {
	t.Helper()
	return newServerWith(t, nil, change...)
}

func newServerWith(t testing.TB, reactors []pstest.ServerReactorOption, change ...func(*pubsubpb.Subscription)) *server {
	t.Helper()
	s := &server{Server: pstest.NewServer(reactors...)}
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	s.SetTimeNowFunc(func() time.Time {
		s.sending.Lock()
		defer s.sending.Unlock()
		return time.Now().Add(time.Duration(s.offset.Load()))
	})
	s.listen(t)
	for _, each := range []string{topic, dead} {
		_, err := s.GServer.CreateTopic(t.Context(), &pubsubpb.Topic{Name: each})
		require.NoError(t, err)
	}
	subscription := &pubsubpb.Subscription{Name: name, Topic: topic, EnableMessageOrdering: true, AckDeadlineSeconds: 10}
	for _, each := range change {
		each(subscription)
	}
	_, err := s.GServer.CreateSubscription(t.Context(), subscription)
	require.NoError(t, err)
	return s
}

// listen puts a server of our own before the fake.
func (s *server) listen(t testing.TB) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	front := grpc.NewServer(grpc.StreamInterceptor(func(fake any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		return next(fake, &sender{stream, s})
	}))
	pubsubpb.RegisterPublisherServer(front, &s.GServer)
	pubsubpb.RegisterSubscriberServer(front, &s.GServer)
	go func() { _ = front.Serve(listener) }()
	t.Cleanup(front.Stop)
	s.Addr = listener.Addr().String()
}

// sender sends copies, which nobody changes any more.
type sender struct {
	grpc.ServerStream

	server *server
}

func (s *sender) SendMsg(m any) error {
	if response, ok := m.(*pubsubpb.StreamingPullResponse); ok {
		s.server.sending.Lock()
		m = proto.CloneOf(response)
		s.server.sending.Unlock()
	}
	return s.ServerStream.SendMsg(m)
}

// pass lets the leases of dead processes end.
func (s *server) pass(d time.Duration) { s.offset.Add(int64(d)) }

// impatient makes Google's client try again soon. It cannot be stopped while it waits, up to a
// minute otherwise: its goroutines would outlive a test with an outage.
func impatient() *pubsub.ClientConfig {
	return &pubsub.ClientConfig{SubscriptionAdminCallOptions: &apiv1.SubscriptionAdminCallOptions{
		StreamingPull: []gax.CallOption{gax.WithRetry(func() gax.Retryer {
			return gax.OnCodes([]codes.Code{codes.Unavailable, codes.ResourceExhausted, codes.Aborted, codes.Internal, codes.DeadlineExceeded},
				gax.Backoff{Initial: 100 * time.Millisecond, Max: 200 * time.Millisecond, Multiplier: 2})
		})},
	}}
}

func clientOptions(addr string) []option.ClientOption {
	return []option.ClientOption{
		option.WithEndpoint(addr), option.WithoutAuthentication(), option.WithTelemetryDisabled(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
	}
}

func newClient(t testing.TB, addr string) *pubsub.Client {
	t.Helper()
	client, err := pubsub.NewClientWithConfig(context.Background(), project, impatient(), clientOptions(addr)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// payload is a message in the external form; n is its data.
func payload(id uuid.UUID, key string, n int) []byte {
	encoded, err := json.Marshal(map[string]any{
		"specversion": "1.0", "id": id.String(), "source": "/ordering", "type": "Ordering.OrderPlaced.v1", "datacontenttype": "application/json",
		"partitionkey": key, "data": map[string]any{"key": key, "n": n},
	})
	if err != nil {
		panic(err)
	}
	return encoded
}

// publish sends messages 0 to n-1 of a key.
func (s *server) publish(key string, n int) {
	for n := range n {
		s.one(key, n)
	}
}

func (s *server) one(key string, n int) {
	s.PublishOrdered(topic, payload(uuid.NewSHA1(uuid.Nil, fmt.Append(nil, key, n)), key, n), map[string]string{"n": fmt.Sprint(n)}, key)
}

// unacked are the messages of the topic that are not confirmed.
func (s *server) unacked() (ids []string) {
	for _, m := range s.all() {
		if m.Topic == topic && m.Acks == 0 {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// letters are the dead letters.
func (s *server) letters() (found []pstest.Message) {
	for _, m := range s.all() {
		if m.Topic == dead {
			found = append(found, m)
		}
	}
	return found
}

// process is a consumer that runs.
type process struct {
	*Consumer
	stop func() error
}

func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

// impatiently completes what a test says of a configuration, which may be nothing.
func impatiently(given []Config) (config Config) {
	if len(given) > 0 {
		config = given[0]
	}
	config.Log, config.ShutdownTimeout = cmp.Or(config.Log, silent()), cmp.Or(config.ShutdownTimeout, 20*time.Second)
	if config.Retry == (inbox.Retry{}) {
		config.Retry = quick
	}
	return config
}

// start runs a consumer; it ends with the test.
func start(t testing.TB, client *pubsub.Client, handler inbox.Handler, config ...Config) *process {
	t.Helper()
	c, err := NewConsumer(client, name, handler, impatiently(config))
	require.NoError(t, err)
	return started(t, c)
}

func started(t testing.TB, c *Consumer) *process {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	stop := sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(time.Minute):
			return context.DeadlineExceeded
		}
	})
	t.Cleanup(func() { require.NoError(t, stop()) })
	return &process{Consumer: c, stop: stop}
}

// eventually waits for a condition.
func eventually(t testing.TB, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, 2*time.Minute, 2*time.Millisecond, what)
}
