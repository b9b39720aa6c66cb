package natsconsumer

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/nats/internal/natsprocess"
)

// atProcesses makes a stream beside others of these processes.
func atProcesses(t *testing.T, nodes []*natsprocess.Process) *jetServer {
	t.Helper()
	s := &jetServer{name: strings.ToLower(rand.Text())}
	for _, node := range nodes {
		s.url += "," + node.URL
	}
	s.url = s.url[1:]
	s.create(t, len(nodes), jetstream.ConsumerConfig{})
	return s
}

// The leader of a stream and the leader of its durable consumer are killed while a single process
// consumes, and come back: every message is handled, in the order of its key.
func TestLeadersAreKilled(t *testing.T) {
	t.Parallel()
	nodes := natsprocess.Start(t, 3)
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
		name := leader().Leader
		victim := nodes[slices.IndexFunc(nodes, func(node *natsprocess.Process) bool { return node.Name == name })]
		victim.Kill(t)
		send(each)
		eventually(t, func() bool { return len(o.done()) == sent }, "all is handled without the leader")
		victim.Start(t)
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
