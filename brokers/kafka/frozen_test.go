package kafka_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/gorm-fanout/fanout/brokers/kafka"
)

// frozen is a server that stands still once it is set: it takes what is written, and says nothing.
type frozen struct {
	at    string
	is    atomic.Bool
	asked atomic.Int64 // writes to connections that were made before
}

type frozenConn struct {
	net.Conn

	of *frozen
}

func (f *frozen) dial(ctx context.Context, network, to string) (net.Conn, error) {
	if to == f.at && f.is.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, to)
	if err == nil && to == f.at {
		return &frozenConn{conn, f}, nil
	}
	return conn, err
}

func (c *frozenConn) Write(b []byte) (int, error) {
	if c.of.is.Load() {
		c.of.asked.Add(1)
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// Clients that are connected to a server that goes out do not ask it for what others know.
func TestConnectedClientsDoNotAskAServerThatIsOut(t *testing.T) {
	t.Parallel()
	const calls = 6
	topics := []string{"there"}
	for i := range 60 {
		topics = append(topics, fmt.Sprint("topic-", i))
	}
	c := startCluster(t, kfake.NumBrokers(3), kfake.SeedTopics(6, topics...))
	for i, topic := range topics {
		for p := range int32(6) {
			leader := p % 2
			if i == 0 {
				leader = p % 3
			}
			require.NoError(t, c.fake.MoveTopicPartition(topic, p, leader))
		}
	}
	f := &frozen{at: c.seeds()[2]}
	b := open(t, c.seeds()[:2], kafka.Settings{Timeout: 10 * time.Minute, Dial: f.dial})
	beside := func(publish func(i int)) {
		var running sync.WaitGroup
		for i := range calls {
			running.Go(func() { publish(i) })
		}
		running.Wait()
	}
	beside(func(int) {
		n, said := kinds(b.Publish(t.Context(), perKey("there", 24)))
		assert.Equal(t, 24, n[""], said)
	})
	f.is.Store(true)
	n, said := kinds(b.Publish(t.Context(), perKey("there", 24)))
	require.Positive(t, n["unavailable partition"], said)
	before := f.asked.Load()
	beside(func(call int) {
		for i := 1 + call; i < len(topics); i += calls {
			n, said := kinds(b.Publish(t.Context(), perKey(topics[i], 8)))
			assert.Equal(t, 8, n[""], said)
		}
	})
	assert.Equal(t, before, f.asked.Load(), "the server was asked again")
}
