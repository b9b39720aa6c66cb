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
