// This file is laid over the package when make test builds its tests: see beside.
package kafka_test

import (
	"context"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/brokertest"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/testservers"
	"github.com/gorm-fanout/fanout/internal/toxic"
)

func init() {
	beside.network = func(t testing.TB, server string) faultyNetwork { return toxic.Start(t, server) }
	beside.servers = func(t testing.TB) []string {
		return strings.Split(testenv.Optional(t, testservers.KafkaVariable), ",")
	}
	beside.secured = func(t testing.TB) (open, secured string) {
		testenv.Optional(t, testservers.KafkaLibVariable)
		own, err := testservers.OwnSecuredKafka(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, own.Close()) })
		return own.URL, own.Secured
	}
	beside.trio = sharedTrio
	beside.ownTrio = func(t testing.TB) (servers []string, signal func(server int32, signal syscall.Signal) error) {
		cluster := ownCluster(t)
		return addresses(cluster), func(server int32, signal syscall.Signal) error { return cluster.Nodes[server-1].Signal(signal) }
	}
}

// A real server is stopped by SIGKILL, and started, while the suite runs.
func TestConformanceOfKilledServer(t *testing.T) {
	t.Parallel()
	testenv.Optional(t, testservers.KafkaLibVariable)
	own, err := testservers.OwnKafka(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, own.Close()) })
	h := newReader(t, []string{own.URL}).harness(t)
	h.Patience = 3 * time.Minute // it takes seconds to start, and many beside others
	h.Stop = func(t *testing.T) { require.NoError(t, own.End(syscall.SIGKILL, patience)) }
	h.Start = func(t *testing.T) { require.NoError(t, own.Start(t.Context())) }
	throughNetwork(t, &h, []string{own.URL})
	brokertest.Run(t, h)
}

func ownCluster(t testing.TB) *testservers.KafkaCluster {
	t.Helper()
	testenv.Optional(t, testservers.KafkaLibVariable)
	testenv.Uses(t, testservers.KafkaLibVariable+", cluster")
	cluster, err := testservers.OwnKafkaCluster(t.Context(), 3)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })
	return cluster
}

func addresses(cluster *testservers.KafkaCluster) (all []string) {
	for _, node := range cluster.Nodes {
		all = append(all, node.URL)
	}
	return all
}

// shared is the cluster of the tests that do not stop its servers.
var shared struct {
	sync.Mutex

	servers []string
	users   int
	cluster *testservers.KafkaCluster
}

func sharedTrio(t testing.TB) []string {
	t.Helper()
	testenv.Optional(t, testservers.KafkaLibVariable)
	testenv.Uses(t, testservers.KafkaLibVariable+", cluster")
	shared := &shared
	shared.Lock()
	defer shared.Unlock()
	if shared.users == 0 {
		cluster, err := testservers.OwnKafkaCluster(context.WithoutCancel(t.Context()), 3)
		require.NoError(t, err)
		shared.cluster, shared.servers = cluster, addresses(cluster)
	}
	shared.users++
	t.Cleanup(func() {
		shared.Lock()
		defer shared.Unlock()
		if shared.users--; shared.users == 0 {
			require.NoError(t, shared.cluster.Close())
		}
	})
	return shared.servers
}
