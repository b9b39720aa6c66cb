package redisstreams_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// startReplica starts a replica of a server and waits until it follows.
func startReplica(t *testing.T, of *server, args ...string) *server {
	t.Helper()
	replica := startServer(t, append([]string{"--replicaof", "127.0.0.1 " + of.port, "--appendonly", "no"}, args...)...)
	replica.awaitLink(t, of)
	return replica
}

// awaitLink waits until both ends of the replication find it in order.
func (s *server) awaitLink(t *testing.T, primary *server) {
	t.Helper()
	soon(t, "the replica follows", func() bool {
		return strings.Contains(s.ask(t, "INFO", "replication"), "master_link_status:up") &&
			strings.Contains(primary.ask(t, "INFO", "replication"), "port="+s.port+",state=online")
	})
}

// A cluster of our own, its slots spread evenly over its nodes.
type cluster struct{ nodes []*server }

func startCluster(t *testing.T, nodes int, args ...string) *cluster {
	t.Helper()
	const slots = 16384
	c := &cluster{}
	for i := range nodes {
		node := startServer(t, append([]string{"--cluster-enabled", "yes", "--cluster-node-timeout", "1500"}, args...)...)
		node.do(t, "CLUSTER", "ADDSLOTSRANGE", i*slots/nodes, (i+1)*slots/nodes-1)
		node.do(t, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		c.nodes = append(c.nodes, node)
	}
	for _, node := range c.nodes[1:] {
		c.nodes[0].do(t, "CLUSTER", "MEET", "127.0.0.1", node.port)
	}
	c.await(t, nodes)
	return c
}

// await waits until every node knows n nodes and finds the cluster in order.
func (c *cluster) await(t *testing.T, n int) {
	t.Helper()
	for _, node := range c.nodes {
		soon(t, "the nodes know each other", func() bool {
			info := node.ask(t, "CLUSTER", "INFO")
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", n)) &&
				!strings.Contains(node.ask(t, "CLUSTER", "NODES"), "handshake")
		})
	}
}

// client returns a client with short patience, closed with the test.
func (c *cluster) client(t *testing.T) *redis.ClusterClient {
	t.Helper()
	options := &redis.ClusterOptions{ContextTimeoutEnabled: true, DialerRetries: 1, DialTimeout: time.Second, MaxRetries: -1}
	for _, node := range c.nodes {
		options.Addrs = append(options.Addrs, node.addr())
	}
	client := redis.NewClusterClient(options)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// streamOn names a stream that a node holds.
func (c *cluster) streamOn(t *testing.T, node *server, prefix string) string {
	t.Helper()
	for i := range 1000 {
		stream := fmt.Sprintf("%s-%d", prefix, i)
		if c.holder(t, stream) == node {
			return stream
		}
	}
	require.Fail(t, "no stream for this node")
	return ""
}

func (c *cluster) holder(t *testing.T, stream string) *server {
	t.Helper()
	for _, node := range c.nodes {
		client := node.client()
		err := client.Exists(t.Context(), stream).Err()
		_ = client.Close()
		if err == nil {
			return node
		}
	}
	return nil
}

// replicate adds a replica of a node.
func (c *cluster) replicate(t *testing.T, of *server) {
	t.Helper()
	replica := startServer(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "1500", "--appendonly", "no")
	c.nodes = append(c.nodes, replica)
	replica.do(t, "CLUSTER", "MEET", "127.0.0.1", of.port)
	client, id := replica.client(), of.ask(t, "CLUSTER", "MYID")
	defer client.Close()
	soon(t, "the replica knows its primary", func() bool { return client.ClusterReplicate(t.Context(), id).Err() == nil })
	c.await(t, len(c.nodes))
	replica.awaitLink(t, of)
}

// migrate moves the slot of a stream from one node to another; during runs while it is halfway: the
// stream has moved, its slot has not.
func (c *cluster) migrate(t *testing.T, stream string, from, to *server, during func()) {
	t.Helper()
	slot, err := from.execute(t, "CLUSTER", "KEYSLOT", stream).Int()
	require.NoError(t, err)
	source, target := from.ask(t, "CLUSTER", "MYID"), to.ask(t, "CLUSTER", "MYID")
	to.do(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", source)
	from.do(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", target)
	from.do(t, "MIGRATE", "127.0.0.1", to.port, stream, 0, 5000)
	during()
	to.do(t, "CLUSTER", "SETSLOT", slot, "NODE", target)
	from.do(t, "CLUSTER", "SETSLOT", slot, "NODE", target)
}

// startSentinel starts a sentinel that watches a primary under the name "main" and decides alone.
func startSentinel(t *testing.T, primary *server) *server {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "sentinel.conf")
	require.NoError(t, os.WriteFile(file, []byte("sentinel monitor main 127.0.0.1 "+primary.port+" 1\n"+
		"sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 5000\n"), 0o600))
	return startAs(t, &server{dir: dir, arguments: func(s *server) []string {
		return []string{file, "--sentinel", "--bind", "127.0.0.1", "--port", s.port, "--dir", s.dir}
	}})
}

// neverPromoted is a replica of a test that does not look for a failover: on a busy machine a Sentinel
// could find that a server is gone which is only slow.
var neverPromoted = []string{"--replica-priority", "0"}

// watched is a primary with a replica, and a Sentinel that decides alone.
type watched struct{ primary, replica, sentinel *server }

func startWatched(t *testing.T, replica ...string) *watched {
	t.Helper()
	w := &watched{primary: startServer(t)}
	w.replica = startReplica(t, w.primary, append([]string{"--appendonly", "yes"}, replica...)...)
	w.sentinel = startSentinel(t, w.primary)
	soon(t, "the sentinel knows the replica", func() bool {
		client := redis.NewSentinelClient(&redis.Options{Addr: w.sentinel.addr()})
		defer client.Close()
		replicas, err := client.Replicas(t.Context(), "main").Result()
		return err == nil && len(replicas) == 1
	})
	return w
}

// client returns a client with short patience, closed with the test.
func (w *watched) client(t *testing.T) *redis.Client {
	t.Helper()
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "main", SentinelAddrs: []string{w.sentinel.addr()}, MaxRetries: -1, ContextTimeoutEnabled: true,
		DialTimeout: time.Second, DialerRetries: 1, ReadTimeout: 3 * time.Second,
	})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}
