package redisstreams_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/brokertest"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/toxic"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // these tests make dials fail
	goleak.VerifyTestMain(m,
		// It asks once a second whether the server is back, and notices Close the next time.
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*redisstreams.Broker) *redisstreams.Broker{
		"process":      func(b *redisstreams.Broker) *redisstreams.Broker { return b }, // which begins with the script
		"transactions": redisstreams.KnowTransactions,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "process" {
				testenv.NeedSeconds(t)
			}
			server := startServer(t)
			conforms(t, suite{url: server.url(), prepare: prepare, stop: server.kill, start: server.start})
		})
	}
	t.Run("replicas", func(t *testing.T) {
		t.Parallel()
		testenv.NeedLong(t)
		primary := startServer(t)
		startReplica(t, primary)
		conforms(t, suite{url: primary.url(), settings: redisstreams.Settings{Replicas: 1, ReplicaTimeout: 20 * time.Second}})
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		testenv.NeedSeconds(t)
		c := startCluster(t, 3)
		stop := func(t *testing.T) {
			for _, node := range c.nodes {
				node.kill(t)
			}
		}
		start := func(t *testing.T) {
			for _, node := range c.nodes {
				node.start(t)
			}
			c.await(t, len(c.nodes))
		}
		conforms(t, suite{client: func() redis.UniversalClient { return c.client(t) }, stop: stop, start: start})
	})
}

// suite is what the conformance suite needs of the servers.
type suite struct {
	url         string // of one server
	settings    redisstreams.Settings
	prepare     func(*redisstreams.Broker) *redisstreams.Broker
	client      func() redis.UniversalClient // of several servers
	stop, start func(t *testing.T)
}

func conforms(t *testing.T, s suite) {
	t.Helper()
	var (
		refused refusal
		number  atomic.Int64
	)
	s.settings.MaxMessageBytes = 1 << 20 // or the suite would make a payload of half a gigabyte
	open := func(url string) *redisstreams.Broker {
		b, err := redisstreams.Open(at(url, s.settings))
		require.NoError(t, err)
		if s.prepare != nil {
			b = s.prepare(b)
		}
		return b
	}
	h := brokertest.Harness{
		Stop: s.stop, Start: s.start, OutByDestination: s.client != nil,
		Destination: func(*testing.T) string { return fmt.Sprintf("ordering::order%d", number.Add(1)) },
		Refuse:      func(_ *testing.T, id string) (restore func()) { return refused.refuse(id) },
	}
	var reader redis.UniversalClient
	if s.client != nil {
		reader = s.client()
		h.Open = func(*testing.T) brokers.Broker {
			client := s.client()
			client.AddHook(refused.hook())
			return redisstreams.New(client, s.settings)
		}
	} else {
		owner := open(s.url)
		t.Cleanup(func() { require.NoError(t, owner.Close(context.Background())) })
		reader = owner.Client()
		h.Open = func(*testing.T) brokers.Broker {
			b := open(s.url)
			b.Client().AddHook(refused.hook())
			return b
		}
		proxy := toxic.Start(t, redisstreams.ClientOptions(owner).Addr)
		h.Network = proxy
		h.OpenThroughNetwork = func(t *testing.T) brokers.Broker { return open("redis://" + proxy.Addr(t)) }
	}
	h.Received = func(t *testing.T, destination string) []brokers.Message { return received(t, reader, destination) }
	brokertest.Run(t, h)
}

// received reads a stream as a consumer does.
func received(t *testing.T, client redis.UniversalClient, stream string) []brokers.Message {
	t.Helper()
	// XRange of go-redis would lose the order of the fields, and with it that data comes first.
	reply, err := client.Do(context.Background(), "XRANGE", stream, "-", "+").Slice()
	require.NoError(t, err)
	messages := make([]brokers.Message, len(reply))
	for i, entry := range reply {
		fields := entry.([]any)[1].([]any)
		messages[i].Destination, messages[i].ContentType = stream, brokers.DefaultContentType
		require.Equal(t, "data", fields[0], "data is the first field")
		for ; len(fields) > 0; fields = fields[2:] {
			name, value := fields[0].(string), fields[1].(string)
			switch m := &messages[i]; name {
			case "data":
				m.Payload = []byte(value)
			case brokers.FieldID:
				m.ID = value
			case brokers.FieldType:
				m.Type = value
			case brokers.FieldOrderingKey:
				m.OrderingKey = value
			case brokers.FieldCorrelationID:
				m.CorrelationID = value
			case brokers.FieldContentType:
				m.ContentType = value
			default:
				m.Attributes = append(m.Attributes, brokers.Attribute{Name: name, Value: value})
			}
		}
	}
	return messages
}
