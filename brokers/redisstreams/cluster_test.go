package redisstreams_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
)

// Slots move while messages are published: nothing is lost, and keys keep their order.
func TestSlotMigration(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 2)
	for _, node := range c.nodes[:2] {
		c.replicate(t, node)
	}
	for name, settings := range map[string]redisstreams.Settings{
		"plain": {}, "with replicas": {Replicas: 1, ReplicaTimeout: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := c.client(t)
			stream, other := c.streamOn(t, c.nodes[0], name), c.streamOn(t, c.nodes[1], name)
			f := feed(t, redisstreams.New(client, settings), stream, other)
			f.progress(t, 60, stream, other)
			c.migrate(t, stream, c.nodes[0], c.nodes[1], func() { f.progress(t, 100, stream, other) }) // ASK
			f.progress(t, 100, stream, other)                                                          // MOVED
			c.migrate(t, stream, c.nodes[1], c.nodes[0], func() { f.progress(t, 100, stream) })
			f.progress(t, 100, stream, other)
			f.stop(t, func(stream string) []brokers.Message { return received(t, client, stream) })
		})
	}
}

// One node of a cluster is gone, or takes nothing: its streams are out and the others' are not.
func TestClusterNodeIsOut(t *testing.T) {
	t.Parallel()
	for name, out := range map[string]func(t *testing.T, node *server) (heal func()){
		"killed": func(t *testing.T, node *server) func() {
			node.kill(t)
			return func() { node.start(t) }
		},
		"out of memory": func(t *testing.T, node *server) func() {
			node.do(t, "CONFIG", "SET", "maxmemory", 1)
			return func() { node.do(t, "CONFIG", "SET", "maxmemory", 0) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, 3, "--cluster-require-full-coverage", "no")
			var streams []string
			for _, node := range c.nodes {
				streams = append(streams, c.streamOn(t, node, "s"))
			}
			client := c.client(t)
			f := feed(t, redisstreams.New(client, redisstreams.Settings{}), streams...)
			f.progress(t, 60, streams...)
			heal := out(t, c.nodes[2])
			soon(t, "the outage is noticed", func() bool { return f.saw("unavailable destination") })
			f.progress(t, 200, streams[:2]...)
			assert.False(t, f.saw("unavailable broker"))
			heal()
			f.progress(t, 200, streams...)
			f.stop(t, func(stream string) []brokers.Message { return received(t, client, stream) })
		})
	}
}

// A ring of servers that know nothing of each other: each stream is on one of them, and so are its
// replicas.
func TestRing(t *testing.T) {
	t.Parallel()
	first, second := startServer(t), startServer(t)
	startReplica(t, first)
	client := redis.NewRing(&redis.RingOptions{
		Addrs: map[string]string{"first": first.addr(), "second": second.addr()}, ContextTimeoutEnabled: true, MaxRetries: -1,
		DialerRetries: 1, HeartbeatFrequency: time.Hour, // or the ring moves the streams of a server that is out
	})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	var msgs []brokers.Message
	for i := range 120 {
		stream := fmt.Sprint("stream-", i%12)
		msgs = append(msgs, message(stream, fmt.Sprint(stream, "-", i%60), i))
	}
	require.Equal(t, map[string]int{"": 120}, verdicts(redisstreams.New(client, redisstreams.Settings{}).Publish(t.Context(), msgs)))
	replicated := redisstreams.New(client, redisstreams.Settings{Replicas: 1, ReplicaTimeout: 2 * time.Second})
	for i, result := range replicated.Publish(t.Context(), msgs) {
		onFirst := first.length(t, msgs[i].Destination) > 0
		require.Equal(t, onFirst, result.Err == nil, "%s: %v", msgs[i].Destination, result.Err)
	}
}
