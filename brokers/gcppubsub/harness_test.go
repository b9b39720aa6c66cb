package gcppubsub_test

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/brokertest"
	"github.com/gorm-fanout/fanout/brokers/gcppubsub"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Started by the import of a metrics library that Google's clients use, for the life of the
		// process.
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("fake", func(t *testing.T) {
		t.Parallel()
		conformanceOfFake(t)
	})
	t.Run("emulator", func(t *testing.T) {
		t.Parallel()
		e := newEmulator(t)
		var number atomic.Int64
		h := brokertest.Harness{
			Open: func(t *testing.T) brokers.Broker { return e.open(t) },
			Destination: func(t *testing.T) string {
				destination := fmt.Sprintf("ordering::order%d", number.Add(1))
				e.createTopic(t, gcppubsub.TopicID(destination))
				return destination
			},
			Received: e.received,
		}
		throughNetwork(t, &h, e, e.addr)
		brokertest.Run(t, h)
	})
}

func conformanceOfFake(t *testing.T) {
	t.Helper()
	s := newServer(t)
	var (
		refused sync.Map
		number  atomic.Int64
	)
	s.reacts(func(request *pubsubpb.PublishRequest) error {
		for _, m := range request.GetMessages() {
			if _, found := refused.Load(m.GetAttributes()[brokers.FieldID]); found {
				return status.Error(codes.InvalidArgument, "refused") // the whole request, as Pub/Sub does
			}
		}
		return nil
	})
	h := brokertest.Harness{
		Open: func(t *testing.T) brokers.Broker { return s.open(t) },
		Destination: func(t *testing.T) string {
			destination := fmt.Sprintf("ordering::order%d", number.Add(1))
			s.createTopic(t, gcppubsub.TopicID(destination))
			return destination
		},
		Received: s.received,
		Refuse: func(_ *testing.T, id string) (restore func()) {
			refused.Store(id, struct{}{})
			return func() { refused.Delete(id) }
		},
		Stop:  func(*testing.T) { s.stop() },
		Start: s.start,
	}
	throughNetwork(t, &h, s, s.addr)
	brokertest.Run(t, h)
}

// throughNetwork puts a network that fails before a site.
func throughNetwork(t *testing.T, h *brokertest.Harness, s site, server string) {
	t.Helper()
	network := brokertest.StartProxy(t, server)
	h.Network = network
	h.OpenThroughNetwork = func(t *testing.T) brokers.Broker { return s.open(t, gcppubsub.Settings{Endpoint: network.Addr(t)}) }
}

// site is a Pub/Sub of some kind.
type site interface {
	createTopic(t *testing.T, topic string)
	open(t *testing.T, settings ...gcppubsub.Settings) *gcppubsub.Broker
	received(t *testing.T, destination string) []brokers.Message
}

// everywhere runs a test with the fake and with the emulator.
func everywhere(t *testing.T, test func(t *testing.T, s site)) {
	t.Helper()
	t.Parallel()
	t.Run("fake", func(t *testing.T) {
		t.Parallel()
		test(t, newServer(t))
	})
	t.Run("emulator", func(t *testing.T) {
		t.Parallel()
		test(t, newEmulator(t))
	})
}

const project = "acme"

// server is a fake Pub/Sub behind a listener of our own, which can be closed and opened again at
// the same address.
type server struct {
	fake     *pstest.Server
	addr     string
	front    *grpc.Server
	options  []grpc.ServerOption
	requests atomic.Int64

	iampb.UnimplementedIAMPolicyServer

	mu    sync.Mutex
	react func(*pubsubpb.PublishRequest) error
	wait  func(context.Context)
	reply func(*pubsubpb.PublishRequest) error
	look  error

	grants map[string][]string // permissions on topics; nil = it knows none, as an emulator
}

func newServer(t *testing.T, opts ...grpc.ServerOption) *server {
	t.Helper()
	s := &server{
		addr: "127.0.0.1:0", options: append(opts, grpc.MaxRecvMsgSize(20<<20)),
	}
	s.fake = pstest.NewServer(pstest.ServerReactorOption{FuncName: "Publish", Reactor: s})
	t.Cleanup(func() { require.NoError(t, s.fake.Close()) })
	s.start(t)
	t.Cleanup(s.stop)
	return s
}

// reacts sets what is answered to a publish: nil = what the fake says.
func (s *server) reacts(to func(*pubsubpb.PublishRequest) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.react = to
}

// waits sets what happens before a request is handled.
func (s *server) waits(wait func(context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wait = wait
}

// replies sets what is answered to a publish that the fake has taken: nil = what the fake says.
func (s *server) replies(reply func(*pubsubpb.PublishRequest) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reply = reply
}

// looks sets what is answered to a look at a topic: nil = what the fake says.
func (s *server) looks(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look = err
}

// grant makes it know permissions, and grants one on a topic.
func (s *server) grant(topic, permission string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grants = map[string][]string{topic: {permission}}
}

// React implements [pstest.Reactor].
func (s *server) React(request any) (handled bool, response any, err error) {
	s.mu.Lock()
	react := s.react
	s.mu.Unlock()
	if react != nil {
		err = react(request.(*pubsubpb.PublishRequest))
	}
	return err != nil, nil, err
}

func (s *server) start(t *testing.T) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", s.addr)
	require.NoError(t, err)
	s.addr = listener.Addr().String()
	s.front = grpc.NewServer(append(s.options, grpc.UnaryInterceptor(s.intercept))...)
	pubsubpb.RegisterPublisherServer(s.front, &s.fake.GServer)
	iampb.RegisterIAMPolicyServer(s.front, s)
	go func(front *grpc.Server) { _ = front.Serve(listener) }(s.front)
}

func (s *server) intercept(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	publish, publishes := request.(*pubsubpb.PublishRequest)
	if publishes {
		s.requests.Add(1)
	}
	s.mu.Lock()
	wait, reply, look := s.wait, s.reply, s.look
	s.mu.Unlock()
	if _, looks := request.(*pubsubpb.GetTopicRequest); looks && look != nil {
		return nil, look
	}
	if wait != nil {
		wait(ctx)
	}
	if ctx.Err() != nil { // nobody waits for the answer: the fake would still take the message
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	response, err := next(ctx, request)
	if err == nil && publishes && reply != nil {
		if err = reply(publish); err != nil {
			return nil, err
		}
	}
	return response, err
}

func (s *server) stop() {
	if s.front != nil {
		s.front.Stop()
		s.front = nil
	}
}

// clientOptions are for a server without TLS and credentials.
func clientOptions() []option.ClientOption {
	return []option.ClientOption{
		option.WithoutAuthentication(), option.WithTelemetryDisabled(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
	}
}

func (s *server) open(t *testing.T, settings ...gcppubsub.Settings) *gcppubsub.Broker {
	t.Helper()
	return openAt(t, s.addr, project, settings...)
}

// openAt opens a broker that is closed with the test.
func openAt(t *testing.T, addr, project string, settings ...gcppubsub.Settings) *gcppubsub.Broker {
	t.Helper()
	s := gcppubsub.Settings{Endpoint: addr}
	if len(settings) > 0 {
		s = settings[0]
		s.Endpoint = cmp.Or(s.Endpoint, addr)
	}
	s.Project, s.Client = project, slices.Concat(clientOptions(), s.Client)
	b, err := gcppubsub.Open(t.Context(), s)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close(context.Background())) })
	return b
}

func fullName(topic string) string { return "projects/" + project + "/topics/" + topic }

func (s *server) createTopic(t *testing.T, topic string) {
	t.Helper()
	_, err := s.fake.GServer.CreateTopic(context.Background(), &pubsubpb.Topic{Name: fullName(topic)})
	require.NoError(t, err)
}

// received is what subscribers of a destination's topic get, in the order in which the server took
// it.
func (s *server) received(_ *testing.T, destination string) (messages []brokers.Message) {
	topic := fullName(gcppubsub.TopicID(destination))
	for _, got := range s.fake.Messages() {
		if got.Topic != topic {
			continue
		}
		messages = append(messages, fromWire(destination, got.OrderingKey, got.Data, got.Attributes))
	}
	return messages
}

// fromWire is the message that a subscriber gets.
func fromWire(destination, key string, data []byte, attributes map[string]string) brokers.Message {
	m := brokers.Message{Destination: destination, Payload: data, OrderingKey: key, ContentType: brokers.DefaultContentType}
	for name, value := range attributes {
		switch name {
		case brokers.FieldID:
			m.ID = value
		case brokers.FieldType:
			m.Type = value
		case brokers.FieldCorrelationID:
			m.CorrelationID = value
		case brokers.FieldContentType:
			m.ContentType = value
		default:
			m.Attributes = append(m.Attributes, brokers.Attribute{Name: name, Value: value})
		}
	}
	return m
}

func ids(messages []brokers.Message) string {
	var ids []string
	for _, m := range messages {
		ids = append(ids, m.ID)
	}
	return strings.Join(ids, " ")
}
