// Package nats_test tests brokers/watermill with a NATS server, which the broker itself does not
// need.
package nats_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	watermillnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/brokertest"
	"github.com/gorm-fanout/fanout/brokers/watermill"
)

const (
	// stream takes all subjects under "ordering".
	stream = "ORDERING"
	// maxStored is the largest message that the stream takes: less than the server does, so that it
	// is the stream that refuses.
	maxStored = 512 << 10
)

// jetStream is a NATS server in this process, with one stream.
type jetStream struct {
	options *server.Options
	server  *server.Server
	url     string
	refused sync.Map // id -> struct{}
	conn    *nats.Conn
	js      nats.JetStreamContext
	read    map[string]*cursor
}

// A cursor is what was read of a subject so far.
type cursor struct {
	last     uint64
	messages []brokers.Message
}

func newJetStream(t *testing.T) *jetStream {
	t.Helper()
	j := &jetStream{
		options: &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true},
		read:    map[string]*cursor{},
	}
	t.Cleanup(func() { j.stop(t) })
	j.start(t)
	_, err := j.js.AddStream(&nats.StreamConfig{Name: stream, Subjects: []string{"ordering.>"}, MaxMsgSize: maxStored, AllowDirect: true})
	require.NoError(t, err)
	return j
}

func (j *jetStream) start(t *testing.T) {
	t.Helper()
	started, err := server.NewServer(j.options)
	require.NoError(t, err)
	j.server = started
	j.server.Start()
	require.True(t, j.server.ReadyForConnections(30*time.Second))
	j.options.Port = j.server.Addr().(*net.TCPAddr).Port
	j.url = j.server.ClientURL()
	j.conn, err = nats.Connect(j.url)
	require.NoError(t, err)
	j.js, err = j.conn.JetStream(nats.MaxWait(30 * time.Second))
	require.NoError(t, err)
}

func (j *jetStream) stop(*testing.T) {
	if j.server == nil {
		return
	}
	j.conn.Close()
	j.server.Shutdown()
	j.server.WaitForShutdown()
	j.server = nil
}

// received reads what is new on the subject of a destination.
func (j *jetStream) received(t *testing.T, destination string) []brokers.Message {
	t.Helper()
	subject := strings.ReplaceAll(destination, "::", ".")
	c := j.read[subject]
	if c == nil {
		c = &cursor{}
		j.read[subject] = c
	}
	newest, err := j.js.GetLastMsg(stream, subject, nats.DirectGet()) // how far to read: a test may be publishing faster than this reads
	if errors.Is(err, nats.ErrMsgNotFound) || err == nil && newest.Sequence == c.last {
		return c.messages
	}
	require.NoError(t, err)
	reader, err := j.js.SubscribeSync(subject, nats.OrderedConsumer(), nats.StartSequence(c.last+1))
	require.NoError(t, err)
	for c.last < newest.Sequence {
		stored, err := reader.NextMsgWithContext(t.Context())
		require.NoError(t, err)
		meta, err := stored.Metadata()
		require.NoError(t, err)
		m, err := quoting{}.Unmarshal(stored)
		require.NoError(t, err)
		c.last, c.messages = meta.Sequence.Stream, append(c.messages, decoded(destination, m))
	}
	require.NoError(t, reader.Unsubscribe())
	return c.messages
}

// confirmation is how long a broker waits for the confirmation of a message. On a busy machine a
// server in the process may well be silent for two seconds. But the client waits to the end when
// its connection breaks meanwhile, and the tests of outages break several.
func confirmation(t *testing.T) time.Duration {
	t.Helper()
	switch path.Base(t.Name()) {
	case "Outage":
		return 3 * time.Second
	case "OutageWhilePublishing": // where each message is sent until it is confirmed
		return 2 * time.Second
	default:
		return 10 * time.Second
	}
}

// open makes a broker with the settings of the example, but for the marshaler and the time for a
// confirmation.
func (j *jetStream) open(t *testing.T, opts ...watermill.Option) brokers.Broker {
	t.Helper()
	conn, err := nats.Connect(j.url, nats.MaxReconnects(-1), nats.ReconnectWait(5*time.Millisecond), nats.ReconnectBufSize(-1))
	require.NoError(t, err)
	publisher, err := watermillnats.NewPublisherWithNatsConn(conn, watermillnats.PublisherPublishConfig{
		Marshaler: quoting{j}, SubjectCalculator: watermillnats.DefaultSubjectCalculator,
		JetStream: watermillnats.JetStreamConfig{TrackMsgId: true, ConnectOptions: []nats.JSOpt{nats.MaxWait(confirmation(t))}},
	}, nil)
	require.NoError(t, err)
	return watermill.New(publisher, append(natsOptions(conn), opts...)...)
}

// quoting quotes what headers cannot carry: names that are no tokens, which the client would leave
// out without a word, and values with line ends or blanks around them. And it makes messages that
// are to be refused too large for the stream.
type quoting struct{ *jetStream }

const quoted = "quoted-"

func (q quoting) Marshal(topic string, m *message.Message) (*nats.Msg, error) {
	clean := message.NewMessage(m.UUID, m.Payload)
	for name, value := range m.Metadata {
		if url.QueryEscape(name) != name || url.QueryEscape(value) != value {
			name, value = quoted+strings.ReplaceAll(url.QueryEscape(name), "%", "$"), url.QueryEscape(value)
		}
		clean.Metadata.Set(name, value)
	}
	if _, refused := q.refused.Load(m.UUID); refused {
		clean.Payload = make([]byte, maxStored+1)
	}
	return (&watermillnats.NATSMarshaler{}).Marshal(topic, clean)
}

func (quoting) Unmarshal(wire *nats.Msg) (*message.Message, error) {
	m, err := (&watermillnats.NATSMarshaler{}).Unmarshal(wire)
	if err != nil {
		return nil, err
	}
	plain := message.NewMessage(m.UUID, m.Payload)
	for name, value := range m.Metadata {
		if escaped, found := strings.CutPrefix(name, quoted); found {
			name, err = url.QueryUnescape(strings.ReplaceAll(escaped, "$", "%"))
			if err == nil {
				value, err = url.QueryUnescape(value)
			}
		}
		plain.Metadata.Set(name, value)
	}
	return plain, err
}

func TestConformance(t *testing.T) {
	t.Parallel()
	j := newJetStream(t)
	var number atomic.Int64
	brokertest.Run(t, brokertest.Harness{
		Open:        func(t *testing.T) brokers.Broker { return j.open(t, watermill.WithMaxMessageBytes(maxStored-8<<10)) },
		Destination: func(*testing.T) string { return fmt.Sprintf("ordering::order%d", number.Add(1)) },
		Received:    j.received,
		Refuse: func(_ *testing.T, id string) (restore func()) {
			j.refused.Store(id, struct{}{})
			return func() { j.refused.Delete(id) }
		},
		Stop:  j.stop,
		Start: j.start,
	})
}

// TestSubscriber: what Watermill's own subscriber gets of messages published with the settings of
// the example.
func TestSubscriber(t *testing.T) {
	t.Parallel()
	j := newJetStream(t)
	b, err := openNATS(j.url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close(context.Background())) })
	msgs := many("ordering::order", 300, 5)
	msgs[0].CorrelationID, msgs[0].ContentType = "checkout-9", "application/cloudevents+json"
	msgs[0].Attributes = []brokers.Attribute{
		{Name: brokers.FieldTraceParent, Value: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		{Name: brokers.FieldTraceState, Value: "vendor=value,other=a:1"},
	}
	require.Equal(t, map[string]int{"": len(msgs)}, verdicts(b.Publish(t.Context(), msgs)))

	subscriber, err := watermillnats.NewSubscriber(watermillnats.SubscriberConfig{
		URL: j.url, Unmarshaler: &watermillnats.NATSMarshaler{}, SubscribersCount: 1, AckWaitTimeout: 30 * time.Second, CloseTimeout: time.Second,
		JetStream: watermillnats.JetStreamConfig{SubscribeOptions: []nats.SubOpt{nats.DeliverAll(), nats.AckExplicit()}},
	}, nil)
	require.NoError(t, err)
	arriving, err := subscriber.Subscribe(t.Context(), "ordering.order")
	require.NoError(t, err)
	last := map[string]int{}
	for range msgs {
		m := <-arriving
		got := decoded("ordering::order", m)
		require.True(t, m.Ack())
		var n int
		_, err := fmt.Sscanf(got.ID, "id-%d", &n)
		require.NoError(t, err)
		if n > 0 { // the default goes without saying
			msgs[n].ContentType = brokers.DefaultContentType
		}
		assert.ElementsMatch(t, msgs[n].Attributes, got.Attributes)
		got.Attributes = msgs[n].Attributes
		require.Equal(t, msgs[n], got, "the ordering key included")
		before, found := last[got.OrderingKey]
		require.True(t, !found || before < n, "message %d came after message %d of its key", n, before)
		last[got.OrderingKey] = n
	}
	require.NoError(t, subscriber.Close())
}

// TestDropsRepeatedIDs: what is delivered again, by an attempt after an unknown outcome, is stored
// once.
func TestDropsRepeatedIDs(t *testing.T) {
	t.Parallel()
	j := newJetStream(t)
	msgs := many("ordering::order", 20, 3)
	for range 3 {
		b := j.open(t) // as another process would
		require.Equal(t, map[string]int{"": len(msgs)}, verdicts(b.Publish(t.Context(), msgs)))
		require.NoError(t, b.Close(t.Context()))
	}
	info, err := j.js.StreamInfo(stream)
	require.NoError(t, err)
	assert.EqualValues(t, len(msgs), info.State.Msgs)
}

// TestErrors: the classes of what the server and its client answer.
func TestErrors(t *testing.T) {
	t.Parallel()
	j := newJetStream(t)
	b := j.open(t, watermill.WithMaxMessageBytes(0))
	msgs := []brokers.Message{
		numbered("nowhere::order", "a", 1), numbered("ordering::order", "a", 2), numbered("ordering::order", "b", 3),
		numbered("ordering::order", "c", 4), numbered("ordering::order", "d", 5),
	}
	msgs[3].Payload = make([]byte, maxStored+1)
	msgs[4].Payload = make([]byte, 2<<20) // above what the server takes
	results := b.Publish(t.Context(), msgs)
	assert.Equal(t, map[string]int{"unavailable destination": 1, "not_sent": 1, "": 1, "permanent": 2}, verdicts(results), "%v", results)
	require.ErrorIs(t, results[0].Err, nats.ErrNoStreamResponse)
	require.ErrorIs(t, results[4].Err, nats.ErrMaxPayload)
	require.NoError(t, b.Close(t.Context()))
}
