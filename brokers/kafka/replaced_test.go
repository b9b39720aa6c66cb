package kafka_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/gorm-fanout/fanout/brokers/kafka"
)

// Servers are replaced one after the other, as nodes of Kubernetes are, and then one goes out: those that are
// no more are not asked for the others, and it costs its partitions.
func TestReplacedServersAreForgotten(t *testing.T) {
	t.Parallel()
	const service = "127.0.0.1:1" // the name that is configured stays
	c := startThree(t, 9)
	ids, address := []int32{1, 2, 0}, map[int32]string{}
	for i, seed := range c.seeds() {
		address[int32(i)] = seed
	}
	spread := func() {
		for p := range int32(9) {
			require.NoError(t, c.fake.MoveTopicPartition("there", p, ids[p%3]))
		}
	}
	spread()
	w := newNetwork()
	entry := c.seeds()[0]
	b := open(t, []string{service}, kafka.Settings{Dial: func(ctx context.Context, network, to string) (net.Conn, error) {
		if to == service {
			w.mu.Lock()
			to = entry
			w.mu.Unlock()
		}
		return w.dial(ctx, network, to)
	}})
	publish := func() (map[string]int, map[string]string) { return kinds(b.Publish(t.Context(), perKey("there", 24))) }
	n, said := publish()
	require.Equal(t, 24, n[""], said)
	for id := int32(10); id < 16; id++ {
		_, port, err := c.fake.AddNode(id, 0)
		require.NoError(t, err)
		address[id] = fmt.Sprint("127.0.0.1:", port)
		old := ids[0]
		ids = append(ids[1:3:3], id)
		w.mu.Lock()
		entry = address[id]
		w.mu.Unlock()
		spread()
		publish()
		require.NoError(t, c.fake.RemoveNode(old))
		w.lose(address[old])
		require.Eventually(t, func() bool { n, said = publish(); return n[""] == 24 }, patience, 10*time.Millisecond, "%v", said)
	}
	w.lose(address[ids[0]])
	for call := range 8 {
		n, said := publish()
		assert.Positive(t, n[""], "call %d: %v", call, said)
		assert.Zero(t, n["unavailable broker"], "call %d: %v", call, said)
	}
}

// A server that was powered off before it was first connected to is known by the address that it advertises.
func TestServerIsOutFromTheStart(t *testing.T) {
	t.Parallel()
	c := startThree(t, 6)
	victim := c.seeds()[2]
	b := open(t, c.seeds()[:2], kafka.Settings{Timeout: 10 * time.Minute, Dial: newNetwork(victim).dial})
	for call := range 2 {
		n, said := kinds(b.Publish(t.Context(), perKey("there", 24)))
		assert.Equal(t, 16, n[""], "call %d: %v", call, said)
		assert.Contains(t, said["unavailable partition"], fmt.Sprintf("server 2 (%s)", victim), "call %d", call)
	}
}

// The partitions of a server that is out get another leader. Once one client knows it, new ones do not refuse them.
func TestLeadersAfterAnOutage(t *testing.T) {
	t.Parallel()
	c := startThree(t, 6)
	w := newNetwork()
	b := open(t, c.seeds()[:2], w.settings())
	publish := func() (map[string]int, map[string]string) { return kinds(b.Publish(t.Context(), perKey("there", 24))) }
	n, said := publish()
	require.Equal(t, 24, n[""], said)
	w.lose(c.seeds()[2])
	n, said = publish()
	require.Positive(t, n["unavailable partition"], said)
	for p := range int32(6) {
		require.NoError(t, c.fake.MoveTopicPartition("there", p, p%2))
	}
	require.Eventually(t, func() bool { n, said = publish(); return n[""] == 24 }, patience, time.Millisecond, "%v", said)
	var running sync.WaitGroup
	for range 4 { // each with a client of its own
		running.Go(func() {
			n, said := publish()
			assert.Equal(t, 24, n[""], said)
		})
	}
	running.Wait()
}

// What waits for a connection ends with the broker.
func TestCloseEndsConnecting(t *testing.T) {
	t.Parallel()
	connecting := make(chan struct{})
	once := sync.OnceFunc(func() { close(connecting) })
	b, err := kafka.Open(kafka.Settings{BootstrapServers: "127.0.0.1:1", Timeout: 10 * time.Minute, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		once()
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		for _, result := range b.Publish(t.Context(), perKey("there", 3)) {
			assert.Error(t, result.Err)
		}
	})
	<-connecting
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, b.Close(over), context.Canceled)
	running.Wait()
}

// A server that is powered off and leads none of the topics is found out as well, and not asked for each of them.
func TestServerWithoutPartitionsIsOut(t *testing.T) {
	t.Parallel()
	var topics []string
	for i := range 20 {
		topics = append(topics, fmt.Sprint("topic-", i))
	}
	c := startCluster(t, kfake.NumBrokers(3), kfake.SeedTopics(2, topics...))
	for _, topic := range topics {
		for p := range int32(2) {
			require.NoError(t, c.fake.MoveTopicPartition(topic, p, p))
		}
	}
	w := newNetwork(c.seeds()[2])
	b := open(t, c.seeds()[:2], w.settings())
	for _, topic := range topics {
		n, said := kinds(b.Publish(t.Context(), perKey(topic, 8)))
		assert.Equal(t, 8, n[""], said)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	assert.LessOrEqual(t, w.hung, 6, "the question whether it is back included")
}
