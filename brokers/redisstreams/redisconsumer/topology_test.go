package redisconsumer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/redisstreams/redisconsumer"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// startCluster starts a cluster of our own, its slots spread evenly over its nodes, and a client
// for it.
func startCluster(t *testing.T, nodes int) (*redis.ClusterClient, []*server) {
	t.Helper()
	const slots = 16384
	var all []*server
	options := &redis.ClusterOptions{DialerRetries: 1, DialTimeout: time.Second}
	for i := range nodes {
		node := startServer(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "1500")
		client := connect(t, node.url())
		require.NoError(t, client.Do(t.Context(), "CLUSTER", "ADDSLOTSRANGE", i*slots/nodes, (i+1)*slots/nodes-1).Err())
		require.NoError(t, client.Do(t.Context(), "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
		if i > 0 {
			require.NoError(t, client.Do(t.Context(), "CLUSTER", "MEET", "127.0.0.1", all[0].port).Err())
		}
		all = append(all, node)
		options.Addrs = append(options.Addrs, node.addr())
	}
	for _, node := range all {
		client := connect(t, node.url())
		soon(t, "the nodes know each other", func() bool {
			info := client.ClusterInfo(context.Background()).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", nodes)) &&
				!strings.Contains(client.ClusterNodes(context.Background()).Val(), "handshake")
		})
	}
	client := redis.NewClusterClient(options)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client, all
}

// severalStreams has a consumer read streams that are spread over servers: with failures, dead
// letters in one step and in two, a take-over, isolated messages, and dead letters that are sent again.
func severalStreams(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	var names []string
	n := 0
	for i := range 6 {
		name := fmt.Sprint("orders-", i)
		if i%2 == 0 {
			name = "{" + name + "}" // together with its dead letters
		}
		names = append(names, name)
		require.NoError(t, client.XGroupCreateMkStream(t.Context(), name, group, "0").Err())
		for range 20 {
			payload, err := sealed(t, fmt.Sprint(i, "-", n%3), n).MarshalInternal()
			require.NoError(t, err)
			require.NoError(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: name, Values: []any{"data", payload, "id", "x", "type", "T"}}).Err())
			n++
		}
		read, err := client.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: group, Consumer: "dead", Streams: []string{name, ">"}, Count: 5}).Result()
		require.NoError(t, err)
		isolated := read[0].Messages[0].ID
		require.NoError(t, client.Do(t.Context(), "XCLAIM", name, group, "dead", 0, isolated, "IDLE", 3600_000, "RETRYCOUNT", 3, "JUSTID").Err())
	}
	l := newLedger()
	c, err := redisconsumer.NewConsumer(client, group, names, l.handler(func(_ context.Context, _ *inbox.Message, n int) error {
		if n%20 == 19 && l.len() < n {
			return inbox.Permanent(errors.New("it does not like the last"))
		}
		return nil
	}), quick())
	require.NoError(t, err)
	r := launch(t, c)
	total := func() (sum figures) {
		all, err := r.Streams(context.Background())
		assert.NoError(t, err)
		sum.ConsumerStats = r.Stats()
		for _, stats := range all {
			sum.Pending += stats.Pending
			sum.TakenOver += stats.TakenOver
		}
		return sum
	}
	soon(t, "everything is handled or abandoned", func() bool { sum := total(); return sum.Handled+sum.Forwarded == 120 && sum.Pending == 0 })
	assert.Equal(t, int64(30), total().TakenOver)
	given := total().Forwarded
	require.Positive(t, given)
	moved := 0
	for _, name := range names {
		letters, err := client.XRange(t.Context(), redisconsumer.DeadStream(name, group), "-", "+").Result()
		require.NoError(t, err)
		for _, letter := range letters {
			assert.Equal(t, name, letter.Values[inbox.FieldDeadLetterSource])
			assert.Equal(t, "x", letter.Values["id"])
			assert.Contains(t, letter.Values["data"], "OrderPlaced")
		}
		n, err := redisconsumer.ResendDeadLetters(t.Context(), client, redisconsumer.DeadStream(name, group), func(string) string { return name + "-again" }, 100)
		require.NoError(t, err)
		again, err := client.XRange(t.Context(), name+"-again", "-", "+").Result()
		require.NoError(t, err)
		assert.Len(t, again, n)
		for _, entry := range again {
			assert.Len(t, entry.Values, 3)
		}
		moved += n
	}
	assert.Equal(t, int(given), moved)
	r.stop(t)
}

func TestCluster(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
	client, _ := startCluster(t, 3)
	severalStreams(t, client)
}

// One node of a cluster is out: the streams of the others flow, and its own go on afterwards.
func TestClusterNodeIsOut(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
	client, nodes := startCluster(t, 3)
	for _, node := range nodes {
		require.NoError(t, connect(t, node.url()).ConfigSet(t.Context(), "cluster-require-full-coverage", "no").Err())
	}
	var names []string
	byNode := map[string]string{}
	for i := 0; len(byNode) < 3; i++ {
		name := fmt.Sprint("orders-", i)
		node, err := client.MasterForKey(t.Context(), name)
		require.NoError(t, err)
		if _, known := byNode[node.Options().Addr]; !known {
			byNode[node.Options().Addr] = name
			names = append(names, name)
		}
	}
	n := 0
	add := func(name string) {
		payload, err := sealed(t, name, n).MarshalInternal()
		require.NoError(t, err)
		require.NoError(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: name, Values: []any{"data", payload}}).Err())
		n++
	}
	for _, name := range names {
		add(name)
	}
	l := newLedger()
	var j journal
	c, err := redisconsumer.NewConsumer(client, group, names, l.handler(nil), quick(redisconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{Log: j.logger()}}))
	require.NoError(t, err)
	launch(t, c)
	soon(t, "all handled", func() bool { return l.len() == 3 })
	nodes[0].kill(t)
	soon(t, "the log names its stream", func() bool { return j.lines("broker unavailable", "stream="+byNode[nodes[0].addr()]) >= 1 })
	for range 10 {
		add(byNode[nodes[1].addr()])
		add(byNode[nodes[2].addr()])
	}
	soon(t, "the others flow", func() bool { return l.len() == 23 })
	nodes[0].start(t)
	soon(t, "it is there again", func() bool {
		return client.XLen(context.Background(), byNode[nodes[0].addr()]).Err() == nil
	})
	add(byNode[nodes[0].addr()])
	soon(t, "its stream flows, too", func() bool { return l.len() == 24 })
}

func TestRing(t *testing.T) {
	t.Parallel()
	first, second := startServer(t), startServer(t)
	client := redis.NewRing(&redis.RingOptions{
		Addrs: map[string]string{"first": first.addr(), "second": second.addr()}, HeartbeatFrequency: time.Hour,
	})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	severalStreams(t, client)
}
