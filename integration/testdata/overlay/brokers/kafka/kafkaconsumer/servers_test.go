// This file is laid over the package when make test builds its tests: see beside.
package kafkaconsumer

import (
	"context"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/inbox"
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
}

// Servers are killed, one after the other, so that leaders and the coordinator of the group change,
// while messages flow and members of the group come and go: all messages are handled, those of a key
// in order and one at a time, and confirmed.
func TestServersAreKilled(t *testing.T) {
	t.Parallel()
	testenv.Optional(t, testservers.KafkaLibVariable)
	testenv.Uses(t, testservers.KafkaLibVariable+", cluster")
	cluster, err := testservers.OwnKafkaCluster(t.Context(), 3)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })
	var servers []string
	for _, node := range cluster.Nodes {
		servers = append(servers, node.URL)
	}
	s := newTopic(t, servers)
	const keys = 8
	var (
		mu      sync.Mutex
		done    [keys]int
		running [keys]bool
		handled atomic.Int64
	)
	open := func() *Consumer {
		t.Helper()
		c, err := NewConsumer(servers, s.group, []string{s.name}, inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
			key, _ := strconv.Atoi(m.OrderingKey)
			n, _ := strconv.Atoi(m.ID)
			mu.Lock()
			assert.False(t, running[key], "key %d is handled beside itself", key)
			running[key] = true
			mu.Unlock()
			runtime.Gosched() // so that others can be seen
			mu.Lock()
			defer mu.Unlock()
			assert.LessOrEqual(t, n, done[key]+1, "the next of key %d", key)
			if n == done[key]+1 {
				done[key] = n
				handled.Add(1)
			}
			running[key] = false
			return inbox.Handled, nil
		}), hurried(Config{}))
		require.NoError(t, err)
		return c
	}
	stops := []func() error{begin(t, open()), begin(t, open())}

	ctx, stop := context.WithCancel(t.Context())
	var publishing sync.WaitGroup
	var sent atomic.Int64
	publishing.Go(func() { // a processor in short: again what was not confirmed
		pace := time.NewTicker(10 * time.Millisecond)
		defer pace.Stop()
		for n := 1; ctx.Err() == nil; n++ {
			var waiting []brokers.Message
			for key := range keys {
				m := message(strconv.Itoa(key), strconv.Itoa(n))
				waiting = append(waiting, brokers.Message{ID: m.ID, Destination: s.destination(), Type: m.Type, OrderingKey: m.Key, Payload: m.Payload})
			}
			sent.Add(keys)
			for len(waiting) > 0 && t.Context().Err() == nil {
				<-pace.C
				left := waiting[:0:0]
				for i, result := range s.broker.Publish(t.Context(), waiting) {
					if result.Err != nil {
						left = append(left, waiting[i])
					}
				}
				waiting = left
			}
		}
	})
	progress := func(what string) {
		t.Helper()
		target := handled.Load() + 40*keys
		require.Eventually(t, func() bool { return handled.Load() >= target }, 3*time.Minute, 10*time.Millisecond, what)
	}
	for round, node := range cluster.Nodes {
		progress("before a kill")
		require.NoError(t, node.End(syscall.SIGKILL, time.Minute))
		progress("without a server")
		if round == 1 { // members change while a server is out
			stops = append(stops, begin(t, open()))
			progress("with a member more")
			require.NoError(t, stops[0]())
		}
		require.NoError(t, node.Start(t.Context()))
	}
	progress("with all servers")
	stop()
	publishing.Wait()
	require.Eventually(t, func() bool { return handled.Load() == sent.Load() }, 3*time.Minute, 10*time.Millisecond, "all are handled")
	require.Eventually(t, func() bool { return s.unconfirmed(t) == 0 }, 3*time.Minute, 100*time.Millisecond, "all are confirmed")
	for _, stop := range stops {
		require.NoError(t, stop())
	}
	t.Logf("%d messages", sent.Load())
}
