package redisconsumer_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/brokers/redisstreams/redisconsumer"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumertest"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/toxic"
)

// conformingClaim outlasts the delays of a busy machine: the suite counts each copy.
const conformingClaim = time.Second

func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("shared", func(t *testing.T) {
		t.Parallel()
		client := connect(t, testenv.Redis(t))
		conforms(t, client, testenv.RedisPrefix(t), "server "+client.Options().Addr)
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		testenv.NeedSeconds(t)
		client, nodes := startCluster(t, 3)
		conforms(t, client, "", "cluster "+nodes[0].addr())
	})
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		testenv.NeedSeconds(t)
		watched := startWatched(t, "--replica-priority", "0") // never promoted, even if the Sentinel finds that a slow primary is gone
		conforms(t, watched.client(t), "", "sentinel "+watched.sentinel.addr())
	})
}

func conforms(t *testing.T, client redis.UniversalClient, prefix, kind string) {
	t.Helper()
	consumertest.Run(t, consumertest.Harness{
		AlwaysDeadLetters: true,
		Source: func(t *testing.T) *consumertest.Source {
			return source(t, client, prefix+"ordering::"+strings.ToLower(rand.Text()), kind)
		},
	})
}

// source is a stream on what kind says: the kind of client, and the address of a server for it.
func source(t *testing.T, client redis.UniversalClient, stream, kind string) *consumertest.Source {
	t.Helper()
	broker := redisstreams.New(client, redisstreams.Settings{})
	s := &consumertest.Source{
		Publish: func(t *testing.T, messages ...consumertest.Message) {
			out := make([]brokers.Message, len(messages))
			for i, m := range messages {
				out[i] = brokers.Message{ID: m.ID, Destination: stream, Type: m.Type, OrderingKey: m.Key, Payload: m.Payload}
			}
			for _, result := range broker.Publish(t.Context(), out) {
				require.NoError(t, result.Err)
			}
		},
		PublishForeign: func(t *testing.T, key string, payload []byte, attributes map[string]string) {
			fields := []any{inbox.FieldOrderingKey, key}
			if payload != nil {
				fields = append(fields, "data", payload)
			}
			for name, value := range attributes {
				fields = append(fields, name, value)
			}
			require.NoError(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, Values: fields}).Err())
		},
		Unconfirmed: func(t *testing.T) int { return unconfirmed(t, client, stream) },
		DeadLetters: func(t *testing.T) (all []consumertest.DeadLetter) {
			letters, err := client.XRange(t.Context(), redisconsumer.DeadStream(stream, group), "-", "+").Result()
			require.NoError(t, err)
			for _, letter := range letters {
				text := func(field string) string { s, _ := letter.Values[field].(string); return s }
				all = append(all, consumertest.DeadLetter{
					ID: text("id"), Key: text("ordering_key"), Payload: []byte(text("data")),
					Reason: text(inbox.FieldDeadLetterReason), Attempts: text(inbox.FieldDeadLetterAttempts),
				})
			}
			return all
		},
		Lease: conformingClaim,
		Child: kind + " " + stream,
	}
	through := client
	if address, alone := strings.CutPrefix(kind, "server "); alone { // other clients find other servers by themselves
		proxy := toxic.Start(t, address)
		s.Network = proxy
		through = redis.NewClient(&redis.Options{
			Addr: proxy.Addr(t), DialTimeout: time.Second, ReadTimeout: time.Second, WriteTimeout: time.Second, DialerRetries: 1, MaxRetries: -1, PoolSize: 50,
		})
		t.Cleanup(func() { require.NoError(t, through.Close()) })
	}
	s.Consumer = func(t *testing.T, handler inbox.Handler, settings *consumertest.Settings) consumertest.Consumer {
		reached := client
		if settings.ThroughNetwork {
			reached = through
		}
		c, err := redisconsumer.NewConsumer(reached, group, []string{stream}, handler,
			quick(redisconsumer.Config{ConsumerConfig: settings.ConsumerConfig, ClaimAfter: conformingClaim}))
		require.NoError(t, err)
		return c
	}
	return s
}

// unconfirmed is what the group has not been given, and what it has been given and not acknowledged.
func unconfirmed(t *testing.T, client redis.UniversalClient, stream string) int {
	t.Helper()
	from := "-"
	pending := int64(0)
	groups, err := client.XInfoGroups(t.Context(), stream).Result()
	require.NoError(t, err)
	for i := range groups {
		from, pending = "("+groups[i].LastDeliveredID, groups[i].Pending
	}
	rest, err := client.XRange(t.Context(), stream, from, "+").Result()
	require.NoError(t, err)
	return len(rest) + int(pending)
}

// conformingChild makes the consumer of a process that the suite kills.
func conformingChild(child string, handler inbox.Handler) (consumertest.Consumer, error) {
	var kind, address, stream string
	if _, err := fmt.Sscan(child, &kind, &address, &stream); err != nil {
		return nil, err
	}
	open := func(client redis.UniversalClient) (consumertest.Consumer, error) {
		return redisconsumer.NewConsumer(client, group, []string{stream}, handler, quick(redisconsumer.Config{ClaimAfter: conformingClaim}))
	}
	switch kind {
	case "cluster":
		return open(redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{address}}))
	case "sentinel":
		return open(redis.NewFailoverClient(&redis.FailoverOptions{MasterName: primaryName, SentinelAddrs: []string{address}}))
	default:
		return open(redis.NewClient(&redis.Options{Addr: address}))
	}
}

const primaryName = "main"

// watched is a primary with a replica, and a Sentinel that decides alone.
type watched struct{ primary, replica, sentinel *server }

func startWatched(t *testing.T, replica ...string) *watched {
	t.Helper()
	w := &watched{primary: startServer(t)}
	w.replica = startServer(t, append([]string{"--replicaof", "127.0.0.1 " + w.primary.port, "--repl-diskless-sync-delay", "0"}, replica...)...)
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	require.NoError(t, os.WriteFile(config, []byte("sentinel monitor "+primaryName+" 127.0.0.1 "+w.primary.port+" 1\n"+
		"sentinel down-after-milliseconds "+primaryName+" 500\nsentinel failover-timeout "+primaryName+" 5000\n"), 0o600))
	w.sentinel = startSentinel(t, config)
	soon(t, "the Sentinel knows the replica", func() bool {
		client := redis.NewSentinelClient(&redis.Options{Addr: w.sentinel.addr()})
		defer client.Close()
		replicas, err := client.Replicas(context.Background(), primaryName).Result()
		return err == nil && len(replicas) == 1 && replicas[0]["master-link-status"] == "ok"
	})
	return w
}

func (w *watched) client(t *testing.T) *redis.Client {
	t.Helper()
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: primaryName, SentinelAddrs: []string{w.sentinel.addr()}, DialTimeout: time.Second, DialerRetries: 1, ReadTimeout: 3 * time.Second,
		MaxRetries: -1, PoolSize: 50, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// The primary dies while its stream is consumed, and its replica takes its place: what is in the
// stream afterwards is handled, each message in the order of its key.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
	w := startWatched(t)
	client := w.client(t)
	const stream, keys, before, after = "ordering::order", 4, 200, 400
	broker := redisstreams.New(client, redisstreams.Settings{Replicas: 1, ReplicaTimeout: time.Second}) // what is confirmed is on the replica
	n := 0
	add := func(until int) {
		for ; n < until; n++ {
			payload, err := sealed(t, fmt.Sprint(n%keys), n).MarshalInternal()
			require.NoError(t, err)
			m := brokers.Message{ID: fmt.Sprint(n), Destination: stream, Type: "T", OrderingKey: fmt.Sprint(n % keys), Payload: payload}
			soon(t, "it is stored", func() bool { return broker.Publish(context.Background(), []brokers.Message{m})[0].Err == nil })
		}
	}
	l := newLedger()
	add(before / 2)
	start(t, client, stream, l.handler(nil))
	add(before)
	w.primary.kill(t)
	promoted := connect(t, w.replica.url())
	soon(t, "the replica is promoted", func() bool {
		return strings.Contains(promoted.Info(context.Background(), "replication").Val(), "role:master")
	})
	w.primary.start(t)
	require.NoError(t, connect(t, w.primary.url()).ReplicaOf(t.Context(), "127.0.0.1", w.replica.port).Err()) // Sentinel does it too, after half a minute
	add(after)
	soon(t, "all are handled", func() bool { return l.len() == after })
	soon(t, "all are confirmed", func() bool { return unconfirmed(t, client, stream) == 0 })
	l.mu.Lock()
	defer l.mu.Unlock()
	assert.Empty(t, l.flaws)
	for key, numbers := range l.byOrder {
		first := map[int]bool{}
		var firsts []int
		for _, n := range numbers {
			if !first[n] {
				firsts = append(firsts, n)
			}
			first[n] = true
		}
		assert.IsIncreasing(t, firsts, key)
	}
}
