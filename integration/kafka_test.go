package integration_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/kafka/kafkaconsumer"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/testservers"
	"github.com/gorm-fanout/fanout/outbox"
)

// The servers of a Kafka cluster are killed, one after the other, while messages are written, two relays
// deliver them and a consumer handles them: all that was committed is handled, each key in order. The
// relays create the topic; the consumer waits for it.
func TestKafkaServersAreKilled(t *testing.T) {
	t.Parallel()
	testenv.NeedLong(t)
	testenv.Optional(t, testservers.KafkaLibVariable)
	cluster, err := testservers.OwnKafkaCluster(t.Context(), 3)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })
	p := newPlace(t, outbox.Postgres)
	b := newBench(p)
	b.configure(fmt.Sprintf(`outbox: {batch_size: 100, external_brokers: []}
brokers:
  default: {type: kafka, bootstrap_servers: %q, create_destinations: true, topics: {partitions: 6, replicas: 3}}
`, cluster.URL()))
	require.Zero(t, b.run("migrate").code)
	relays := []*relayProcess{b.relay(), b.relay()}

	const keys, between = 20, 300
	ctx, stop := context.WithCancel(t.Context())
	written := make(chan int, 1)
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			row := numbered("default", "ordering::order", n%keys, n/keys+1)
			row.Payload = fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"source":"/s","type":"T.v1","data":{}}`, row.MessageID)
			row.CorrelationID = fmt.Sprint(n/keys + 1)
			p.persist(t.Context(), row)
		}
		written <- n
	}()
	eventually(t, func() bool { return b.count("status = 'published'") > 0 })

	var (
		mu      sync.Mutex
		last    = map[string]int{}
		handled int
		copies  int
	)
	consumer, err := kafkaconsumer.NewConsumer([]string{cluster.Nodes[0].URL, cluster.Nodes[1].URL, cluster.Nodes[2].URL}, "billing", []string{"ordering.order"},
		inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
			var n int
			if _, err := fmt.Sscan(m.Attributes["correlation_id"], &n); err != nil {
				return "", err
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case n == last[m.OrderingKey]+1:
				last[m.OrderingKey] = n
				handled++
			case n > last[m.OrderingKey]:
				return "", errors.New("it came before those in front of it")
			default:
				copies++
			}
			return inbox.Handled, nil
		}), kafkaconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{Log: slog.New(slog.DiscardHandler)}})
	require.NoError(t, err)
	consuming, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- consumer.Run(consuming) }()

	arrived := func(n int) {
		t.Helper()
		require.Eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return handled >= n
		}, 3*time.Minute, 10*time.Millisecond)
	}
	now := func() int {
		mu.Lock()
		defer mu.Unlock()
		return handled
	}
	for _, node := range cluster.Nodes {
		arrived(now() + between)
		require.NoError(t, node.End(syscall.SIGKILL, time.Minute))
		arrived(now() + between)
		require.NoError(t, node.Start(t.Context()))
	}
	stop()
	rows := <-written
	require.Eventually(t, func() bool { return b.count("finished_at IS NULL") == 0 }, 3*time.Minute, 10*time.Millisecond)
	for _, relay := range relays {
		code, _ := relay.stop()
		assert.Zero(t, code, relay.log.String())
	}
	assert.Equal(t, rows, b.count("status = 'published'"))
	arrived(rows)
	leave()
	require.NoError(t, <-left)
	assert.Equal(t, rows, handled)
	assert.Zero(t, consumer.Stats().Failed, "each key comes in order")
	t.Logf("%d messages, %d second copies", handled, copies)
}
