package redisstreams_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// The client has what processors and consumers need, whatever the servers are.
func TestConnectSettings(t *testing.T) {
	t.Parallel()
	const first = "redis://me:hush@one:7000?pool_size=7&read_timeout=4s&max_retries=9"
	for name, servers := range map[string]redisstreams.Settings{
		"one":      {URLs: []adapter.Secret{first}},
		"Sentinel": {URLs: []adapter.Secret{first + "&sentinel_username=guard&sentinel_password=dog", "redis://two"}, Master: "main"},
		"cluster":  {URLs: []adapter.Secret{first, "redis://me:hush@two"}, Cluster: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers.Replicas, servers.ReplicaTimeout = 1, time.Second
			client, err := redisstreams.Connect(servers)
			require.NoError(t, err)
			defer client.Close()
			var got redis.Options
			switch client := client.(type) {
			case *redis.Client:
				got = *client.Options()
			case *redis.ClusterClient:
				o := client.Options()
				assert.Equal(t, []string{"one:7000", "two:6379"}, o.Addrs)
				got = redis.Options{
					Username: o.Username, Password: o.Password, PoolSize: o.PoolSize, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
					DialTimeout: o.DialTimeout, DialerRetries: o.DialerRetries, ContextTimeoutEnabled: o.ContextTimeoutEnabled, MaxRetries: 0,
				}
			}
			assert.Equal(t, []any{"me", "hush", 7, 5 * time.Second, 10 * time.Second, 3 * time.Second, 1, true, 0},
				[]any{got.Username, got.Password, got.PoolSize, got.ReadTimeout, got.WriteTimeout, got.DialTimeout, got.DialerRetries, got.ContextTimeoutEnabled, got.MaxRetries})
		})
	}
}

// What does not fit together is refused, and no password is in the error.
func TestServersThatDoNotFit(t *testing.T) {
	t.Parallel()
	for says, servers := range map[string]redisstreams.Settings{
		"no URL is given":             {},
		"Master and Cluster are both": {URLs: []adapter.Secret{"redis://a"}, Master: "main", Cluster: true},
		"2 URLs are given: say":       {URLs: []adapter.Secret{"redis://a", "redis://b"}},
		"the URL of b:6379 has another user, password, database or TLS than that of a:26379": {URLs: []adapter.Secret{"redis://:hush@a", "redis://:hash@b:6379"}, Master: "main"},
		"the URL of b:1 has another user":        {URLs: []adapter.Secret{"redis://a", "rediss://b:1"}, Cluster: true},
		"the URL of a:6379 has database 3":       {URLs: []adapter.Secret{"redis://a/3"}, Cluster: true},
		"which do nothing without Master":        {URLs: []adapter.Secret{"redis://a?sentinel_password=hush"}},
		"a unix socket is one server":            {URLs: []adapter.Secret{"unix:///tmp/redis.sock"}, Cluster: true},
		"the URL is not understood":              {URLs: []adapter.Secret{"redis://:hu/sh@a"}, Master: "main"},
		"the URL is not understood; write redis": {URLs: []adapter.Secret{"redis://a", "redis://b?hush=1"}, Cluster: true},
	} {
		_, err := redisstreams.Open(servers)
		require.ErrorContains(t, err, "redisstreams: open: ")
		require.ErrorContains(t, err, says)
		assert.NotContains(t, err.Error(), "hush")
	}
}

// By their URLs: a primary that Sentinel watches, and a cluster of which one node is named.
func TestOpenSeveralServers(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
	publish := func(t *testing.T, servers redisstreams.Settings) {
		t.Helper()
		b, err := redisstreams.Open(servers)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, b.Close(t.Context())) })
		require.NoError(t, b.Ping(t.Context()))
		var msgs []brokers.Message
		for i, stream := range []string{"a", "b", "c", "d", "e", "f"} {
			msgs = append(msgs, message(stream, "", i))
		}
		assert.Equal(t, map[string]int{"": len(msgs)}, verdicts(b.Publish(t.Context(), msgs)))
	}
	t.Run("Sentinel", func(t *testing.T) {
		t.Parallel()
		w := startWatched(t, neverPromoted...)
		publish(t, redisstreams.Settings{URLs: []adapter.Secret{adapter.Secret("redis://" + w.sentinel.addr()), "redis://127.0.0.1:1"}, Master: "main"})
		assert.Equal(t, 1, w.primary.length(t, "a"))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		c := startCluster(t, 3)
		publish(t, redisstreams.Settings{URLs: []adapter.Secret{adapter.Secret("redis://" + c.nodes[1].addr())}, Cluster: true})
	})
}
