package redisstreams_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/internal/testenv"
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
	testenv.NeedSeconds(t)
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
