// This file is laid over the package when make test builds its tests: see beside.
package natsconsumer

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/inbox/consumertest"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/testservers"
	"github.com/gorm-fanout/fanout/internal/toxic"
)

func init() {
	beside.network = func(t testing.TB, server string) faultyNetwork { return toxic.Start(t, server) }
	beside.processes = func(t *testing.T, size int) *consumertest.Harness {
		nodes := startProcesses(t, size)
		return &consumertest.Harness{
			Source: func(t *testing.T) *consumertest.Source { return atProcesses(t, nodes).source(t) },
		}
	}
}

// startProcesses starts a nats-server, or a cluster of them.
func startProcesses(t *testing.T, size int) []*testservers.Own {
	t.Helper()
	testenv.Optional(t, testservers.NATSBinVariable)
	if size > 1 {
		testenv.Uses(t, testservers.NATSBinVariable+", cluster")
	}
	var (
		nodes = make([]*testservers.Own, 1)
		err   error
	)
	if size == 1 {
		nodes[0], err = testservers.OwnNATS(t.Context())
	} else {
		nodes, err = testservers.OwnNATSCluster(t.Context(), size)
	}
	require.NoError(t, err)
	for _, node := range nodes {
		t.Cleanup(func() { require.NoError(t, node.Close()) })
	}
	return nodes
}

// atProcesses makes a stream beside others of these processes.
func atProcesses(t *testing.T, nodes []*testservers.Own) *jetServer {
	t.Helper()
	s := &jetServer{name: strings.ToLower(rand.Text())}
	for _, node := range nodes {
		s.url += "," + node.URL
	}
	s.url = s.url[1:]
	if len(nodes) == 1 { // clients find the other servers of a cluster by themselves, past a network in front of one
		s.addr = nodes[0].Address()
	}
	s.create(t, len(nodes), jetstream.ConsumerConfig{})
	return s
}

// The leader of a stream and that of its durable die while an only process consumes, and come back:
// every message is handled, in the order of its key.
func TestLeadersAreKilled(t *testing.T) {
	t.Parallel()
	nodes := startProcesses(t, 3)
	s := atProcesses(t, nodes)
	o := &diary{}
	c, err := NewConsumer(s.connect(t, s.url), "ORDERING"+s.name, "billing", o, hurried(Config{Exclusive: true}))
	require.NoError(t, err)
	stop := begin(t, c)

	const keys, each = 4, 40
	sent := 0
	send := func(n int) {
		for ; n > 0; n-- {
			s.publishAgain(t, fmt.Sprintf("%d-%04d", sent%keys, sent))
			sent++
		}
	}
	leaders := []func() *jetstream.ClusterInfo{
		func() *jetstream.ClusterInfo {
			stream, err := s.js.Stream(t.Context(), "ORDERING"+s.name)
			require.NoError(t, err)
			return stream.CachedInfo().Cluster
		},
		func() *jetstream.ClusterInfo {
			durable, err := s.js.Consumer(t.Context(), "ORDERING"+s.name, "billing")
			require.NoError(t, err)
			return durable.CachedInfo().Cluster
		},
	}
	for _, leader := range leaders {
		send(each)
		victim := named(t, nodes, leader().Leader)
		require.NoError(t, victim.End(syscall.SIGKILL, time.Minute))
		send(each)
		eventually(t, func() bool { return len(o.done()) == sent }, "all is handled without the leader")
		require.NoError(t, victim.Start(t.Context()))
	}
	require.NoError(t, stop())
	byKey := map[string][]string{}
	for _, id := range o.done() {
		key, _, _ := strings.Cut(id, "-")
		byKey[key] = append(byKey[key], id)
	}
	require.Len(t, byKey, keys)
	for key, ids := range byKey {
		assert.True(t, slices.IsSorted(ids), "of key %s: %v", key, ids)
	}
}

// publishAgain publishes a message, whose key is what its id begins with, until it is stored.
func (s *jetServer) publishAgain(t *testing.T, id string) {
	t.Helper()
	key, _, _ := strings.Cut(id, "-")
	m := message(key, id)
	eventually(t, func() bool {
		return s.broker.Publish(t.Context(), []brokers.Message{{
			ID: id, Destination: "ordering" + s.name + "::order", Type: m.Type, OrderingKey: key, Payload: m.Payload,
		}})[0].Err == nil
	}, "a message is stored")
}

// named is the server of a name.
func named(t *testing.T, nodes []*testservers.Own, name string) *testservers.Own {
	t.Helper()
	at := slices.IndexFunc(nodes, func(node *testservers.Own) bool {
		conn, err := nats.Connect(node.URL)
		require.NoError(t, err)
		defer conn.Close()
		return conn.ConnectedServerName() == name
	})
	require.GreaterOrEqual(t, at, 0, name)
	return nodes[at]
}
