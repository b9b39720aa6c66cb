package kafka_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	for try := range 10 {
		t.Run(fmt.Sprint(try), func(t *testing.T) {
			t.Parallel()
			b := open(t, c.seeds()[:2], kafka.Settings{Timeout: 10 * time.Minute, Dial: newNetwork(victim).dial})
			for call := range 2 {
				n, said := kinds(b.Publish(t.Context(), perKey("there", 24)))
				assert.Equal(t, 16, n[""], "call %d: %v", call, said)
				assert.Contains(t, said["unavailable partition"], fmt.Sprintf("server 2 (%s)", victim), "call %d", call)
			}
		})
	}
}
