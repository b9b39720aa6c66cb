package nats_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/nats"
	"github.com/gorm-fanout/fanout/brokers/nats/internal/natsprocess"
)

func TestMain(m *testing.M) {
	natsprocess.Main()
	goleak.VerifyTestMain(m,
		// A queue of the server in the process is closed some time after the server has shut down.
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*Server).startGoRoutine.func1"))
}

const patience = 30 * time.Second

// jetServer is a NATS server with JetStream in this process, or processes of their own, which may be
// stopped and started.
type jetServer struct {
	options *server.Options // nil for processes
	server  *server.Server
	nodes   []*natsprocess.Process // one server, or a cluster
	stopped []*natsprocess.Process // of them
	url     string                 // of a user who may everything
	conn    *client.Conn
	js      jetstream.JetStream
	read    map[string]*cursor
	users   []client.Option
}

// A cursor is what was read of a subject so far.
type cursor struct {
	last     uint64
	messages []brokers.Message
}

// startServer starts a server on a free port; change may change its options.
func startServer(t testing.TB, change func(*server.Options), admin ...client.Option) *jetServer {
	t.Helper()
	s := &jetServer{
		options: &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true},
		read:    map[string]*cursor{}, users: admin,
	}
	if change != nil {
		change(s.options)
	}
	t.Cleanup(func() { s.stop(t) })
	s.start(t)
	return s
}

// startProcesses starts a server in a process of its own, or a cluster of them.
func startProcesses(t *testing.T, size int) *jetServer {
	t.Helper()
	s := &jetServer{read: map[string]*cursor{}, nodes: natsprocess.Start(t, size)}
	var urls []string
	for _, node := range s.nodes {
		urls = append(urls, node.URL)
	}
	s.url = strings.Join(urls, ",")
	t.Cleanup(func() { s.conn.Close() })
	s.start(t)
	return s
}

func (s *jetServer) start(t testing.TB) {
	t.Helper()
	for _, node := range s.stopped {
		node.Start(t)
	}
	s.stopped = nil
	if s.options != nil {
		started, err := server.NewServer(s.options)
		require.NoError(t, err)
		s.server = started
		s.server.Start()
		require.True(t, s.server.ReadyForConnections(patience))
		s.options.Port = s.server.Addr().(*net.TCPAddr).Port
		s.url = s.server.ClientURL()
	}
	var err error
	s.conn, err = client.Connect(s.url, s.users...)
	require.NoError(t, err)
	s.js, err = jetstream.New(s.conn)
	require.NoError(t, err)
}

// kill ends a process as a crash does.
func (s *jetServer) kill(t testing.TB, node *natsprocess.Process) {
	t.Helper()
	node.Kill(t)
	s.stopped = append(s.stopped, node)
}

// stop ends the server in the process, or kills the only process, or most of a cluster.
func (s *jetServer) stop(t testing.TB) {
	t.Helper()
	if s.nodes != nil {
		s.conn.Close()
		for _, node := range s.nodes[:len(s.nodes)/2+1] {
			s.kill(t, node)
		}
		if last := s.nodes[len(s.nodes)-1]; len(s.nodes) > 1 {
			s.leaderless(t, last.URL)
		}
	}
	if s.server == nil {
		return
	}
	s.conn.Close()
	s.server.Shutdown()
	s.server.WaitForShutdown()
	s.server = nil
}

// leaderless waits until what is left of a cluster knows that it has no leader. Until then it says so of streams alone.
func (s *jetServer) leaderless(t testing.TB, url string) {
	t.Helper()
	conn, err := client.Connect(url, s.users...)
	require.NoError(t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
		defer cancel()
		_, err := js.AccountInfo(ctx)
		return err != nil
	}, patience, 10*time.Millisecond)
}

func (s *jetServer) addr() string {
	if s.server == nil {
		return s.nodes[0].Address
	}
	return s.server.Addr().String()
}

// stream creates a stream.
func (s *jetServer) stream(t testing.TB, config jetstream.StreamConfig) jetstream.Stream {
	t.Helper()
	stream, err := s.js.CreateStream(t.Context(), config)
	require.NoError(t, err)
	return stream
}

// received reads what is new on a subject, as a consumer does.
func (s *jetServer) received(t testing.TB, subject, destination string) []brokers.Message {
	t.Helper()
	c := s.read[subject]
	if c == nil {
		c = &cursor{}
		s.read[subject] = c
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	name, err := s.js.StreamNameBySubject(ctx, subject)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	require.NoError(t, err)
	stream, err := s.js.Stream(ctx, name)
	require.NoError(t, err)
	newest, err := stream.GetLastMsgForSubject(ctx, subject) // how far to read: a test may be publishing faster than this reads
	if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && newest.Sequence == c.last {
		return c.messages
	}
	require.NoError(t, err)
	for c.last < newest.Sequence { // by questions to the leader: a consumer may read from a server that is behind
		stored, err := stream.GetMsg(ctx, c.last+1, jetstream.WithGetMsgSubject(subject))
		require.NoError(t, err)
		c.last, c.messages = stored.Sequence, append(c.messages, decoded(t, destination, subject, stored.Header, stored.Data))
	}
	return c.messages
}

// decoded is what a consumer makes of a message.
func decoded(t testing.TB, destination, subject string, header client.Header, payload []byte) brokers.Message {
	t.Helper()
	m := brokers.Message{Destination: destination, ContentType: brokers.DefaultContentType, Payload: payload}
	assert.Equal(t, header.Get(brokers.FieldID)+"@"+subject, header.Get(jetstream.MsgIDHeader))
	for name, values := range header {
		for _, value := range values {
			switch name {
			case jetstream.MsgIDHeader:
			case brokers.FieldID:
				m.ID = value
			case brokers.FieldType:
				m.Type = value
			case brokers.FieldOrderingKey:
				key, err := url.PathUnescape(value)
				require.NoError(t, err)
				m.OrderingKey = key
			case brokers.FieldCorrelationID:
				m.CorrelationID = value
			case brokers.FieldContentType:
				m.ContentType = value
			default:
				m.Attributes = append(m.Attributes, brokers.Attribute{Name: name, Value: value})
			}
		}
	}
	return m
}

// open opens a broker and closes it with the test.
func open(t testing.TB, url string, settings ...nats.Settings) *nats.Broker {
	t.Helper()
	var s nats.Settings
	if len(settings) > 0 {
		s = settings[0]
	}
	s.URL = adapter.Secret(url)
	b, err := nats.Open(s)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		assert.NoError(t, b.Close(ctx))
	})
	return b
}

func numbered(destination, key string, n int) brokers.Message {
	return brokers.Message{
		ID: fmt.Sprintf("id-%d", n), Destination: destination, Type: "T.v1", OrderingKey: key, ContentType: brokers.DefaultContentType,
		Payload: fmt.Appendf(nil, "%d", n),
	}
}

// classes are the classes and scopes of results.
func classes(results []brokers.Result) []string {
	all := make([]string, len(results))
	for i, result := range results {
		class, scope := brokers.Classify(result.Err)
		all[i] = string(class)
		if scope != "" {
			all[i] += " " + string(scope)
		}
	}
	return all
}

// spoiler is a dialer whose connections make an instruction that the server refuses of the message
// id of some messages: Nats-Rollup, which has as many letters as Nats-Msg-Id and takes no ids.
type spoiler struct{ ids sync.Map }
