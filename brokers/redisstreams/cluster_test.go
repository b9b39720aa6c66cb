package redisstreams_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/brokertest"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
)

func TestConformanceOfACluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	conforms(t, true, func() redis.UniversalClient { return c.client(t) }, func() {
		for _, node := range c.nodes {
			node.kill(t)
		}
	}, func() {
		for _, node := range c.nodes {
			node.start(t)
		}
		c.await(t, len(c.nodes))
	})
}

// Sentinel knows a primary and its replica, both of which die and come back.
func TestConformanceBehindSentinel(t *testing.T) {
	t.Parallel()
	w := startWatched(t, neverPromoted...)
	conforms(t, false, func() redis.UniversalClient { return w.client(t) }, func() {
		w.replica.kill(t)
		w.primary.kill(t)
	}, func() {
		w.primary.start(t)
		w.replica.start(t)
		w.replica.awaitLink(t, w.primary)
	})
}

// conforms runs the suite with brokers on clients that open makes. stop takes the servers away, start
// brings them back.
func conforms(t *testing.T, byDestination bool, open func() redis.UniversalClient, stop, start func()) {
	t.Helper()
	reader := open()
	var (
		number  atomic.Int64
		refusal refusal
	)
	brokertest.Run(t, brokertest.Harness{
		Open: func(*testing.T) brokers.Broker {
			client := open()
			client.AddHook(&refusal)
			return redisstreams.New(client, redisstreams.Settings{MaxMessageBytes: 1 << 20})
		},
		Stop:  func(*testing.T) { stop() },
		Start: func(*testing.T) { start() },

		OutByDestination: byDestination,
		Destination:      func(*testing.T) string { return fmt.Sprintf("ordering::order%d", number.Add(1)) },
		Received: func(t *testing.T, destination string) []brokers.Message {
			return received(t, reader, destination)
		},
		Refuse: func(_ *testing.T, id string) (restore func()) {
			refusal.ids.Store(id, struct{}{})
			return func() { refusal.ids.Delete(id) }
		},
	})
}

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

// One node dies: its streams are out, the others' are not.
func TestClusterNodeIsKilled(t *testing.T) {
	t.Parallel()
	for name, coverage := range map[string]string{"other slots are served": "no", "all slots are needed": "yes"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, 3, "--cluster-require-full-coverage", coverage)
			var streams []string
			for _, node := range c.nodes {
				streams = append(streams, c.streamOn(t, node, "s"))
			}
			client := c.client(t)
			f := feed(t, redisstreams.New(client, redisstreams.Settings{}), streams...)
			f.progress(t, 60, streams...)
			c.nodes[2].kill(t)
			soon(t, "the outage is noticed", func() bool { return f.saw("unavailable destination") })
			if coverage == "no" {
				f.progress(t, 200, streams[:2]...)
			} else { // each node says so for the streams that it has
				soon(t, "CLUSTERDOWN", func() bool {
					return strings.Contains(fmt.Sprint(client.XLen(t.Context(), streams[0]).Err()), "CLUSTERDOWN")
				})
			}
			assert.False(t, f.saw("unavailable broker"))
			c.nodes[2].start(t)
			f.progress(t, 200, streams...)
			f.stop(t, func(stream string) []brokers.Message { return received(t, client, stream) })
		})
	}
}

// Replicas are asked for where the stream is, and their lack is that node's alone.
func TestReplicasOfACluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 2)
	with, without := c.nodes[0], c.nodes[1]
	replica := c.replicate(t, with)
	client := c.client(t)
	b := redisstreams.New(client, redisstreams.Settings{Replicas: 1, ReplicaTimeout: 2 * time.Second})
	rich, poor := c.streamOn(t, with, "s"), c.streamOn(t, without, "s")
	var bulk []brokers.Message
	for i := range 100 {
		bulk = append(bulk, message(rich, "", i), message(poor, "", i))
	}
	for range 2 {
		results := b.Publish(t.Context(), bulk)
		require.Equal(t, map[string]int{"": 100, "unavailable destination": 100}, verdicts(results), "%v", results[0].Err)
		require.ErrorContains(t, results[1].Err, "too few replicas")
	}
	assert.Equal(t, 100, without.length(t, poor), "once, not per attempt")
	assert.Equal(t, 200, with.length(t, rich))
	assert.Equal(t, 200, replica.lengthHere(t, rich))
}
