package watermill_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/brokertest"
	"github.com/gorm-fanout/fanout/brokers/watermill"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// process is Watermill's pub/sub in the process, as a server that connections are made to: it can
// refuse messages and be away. What it says then has no class, like the errors of most publishers.
type process struct {
	pubsub  *gochannel.GoChannel
	down    atomic.Bool
	refused sync.Map // id -> struct{}

	mu       sync.Mutex
	received map[string][]brokers.Message
	reading  sync.WaitGroup
}

func newProcess(t *testing.T) *process {
	t.Helper()
	p := &process{
		// Without the wait for acknowledgements it promises no order.
		pubsub:   gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil),
		received: map[string][]brokers.Message{},
	}
	t.Cleanup(func() {
		require.NoError(t, p.pubsub.Close())
		p.reading.Wait()
	})
	return p
}

// subscribe collects what arrives at a topic.
func (p *process) subscribe(t *testing.T, topic string) {
	t.Helper()
	arriving, err := p.pubsub.Subscribe(context.Background(), topic)
	require.NoError(t, err)
	p.reading.Go(func() {
		for m := range arriving {
			p.mu.Lock()
			p.received[topic] = append(p.received[topic], decoded(topic, m))
			p.mu.Unlock()
			m.Ack()
		}
	})
}

// decoded is what a consumer makes of a message of Watermill.
func decoded(destination string, m *message.Message) brokers.Message {
	got := brokers.Message{Destination: destination, Payload: m.Payload, ContentType: brokers.DefaultContentType}
	for name, value := range m.Metadata {
		switch name {
		case brokers.FieldID:
			got.ID = value
		case brokers.FieldType:
			got.Type = value
		case brokers.FieldCorrelationID:
			got.CorrelationID = value
		case brokers.FieldContentType:
			got.ContentType = value
		case watermill.DefaultOrderingKeyMetadata:
			got.OrderingKey = value
		default:
			got.Attributes = append(got.Attributes, brokers.Attribute{Name: name, Value: value})
		}
	}
	if got.ID != m.UUID {
		got.ID = fmt.Sprintf("%s, and as the UUID %s", got.ID, m.UUID)
	}
	return got
}

func (p *process) messages(_ *testing.T, topic string) []brokers.Message {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.received[topic])
}

// connection is a publisher of its own, so that closing it leaves the others alone.
type connection struct {
	*process

	closed atomic.Bool
}

func (c *connection) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		if _, refused := c.refused.Load(m.UUID); refused {
			return errors.New("refused")
		}
	}
	if c.down.Load() || c.closed.Load() {
		return errors.New("not connected")
	}
	return c.pubsub.Publish(topic, messages...)
}

func (c *connection) Close() error {
	if c.closed.Swap(true) {
		return errors.New("closed twice")
	}
	return nil
}

func (p *process) ping(ctx context.Context) error {
	if p.down.Load() {
		return errors.New("not connected")
	}
	return ctx.Err()
}

func TestConformance(t *testing.T) {
	t.Parallel()
	var number atomic.Int64
	p := newProcess(t)
	brokertest.Run(t, brokertest.Harness{
		Open: func(*testing.T) brokers.Broker {
			return watermill.New(&connection{process: p}, watermill.WithPing(p.ping), watermill.WithMaxMessageBytes(1<<20))
		},
		Destination: func(t *testing.T) string {
			destination := fmt.Sprintf("ordering::order%d", number.Add(1))
			p.subscribe(t, destination)
			return destination
		},
		Received: p.messages,
		Refuse: func(_ *testing.T, id string) (restore func()) {
			p.refused.Store(id, struct{}{})
			return func() { p.refused.Delete(id) }
		},
		Stop:  func(*testing.T) { p.down.Store(true) },
		Start: func(*testing.T) { p.down.Store(false) },
	})
}
