// This file is laid over the package when make test builds its tests: the Redis in memory is not among
// the requirements of this module, which has to stay small for those who write.
package redisdedup_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorm-fanout/fanout/inbox/dedup"
	"github.com/gorm-fanout/fanout/inbox/dedup/deduptest"
	"github.com/gorm-fanout/fanout/inbox/dedup/redisdedup"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, address string) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(address)
	require.NoError(t, err)
	client := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("a server", func(t *testing.T) {
		t.Parallel()
		client := open(t, testenv.Redis(t))
		conform(t, func(t *testing.T) (redis.UniversalClient, string) { return client, testenv.RedisPrefix(t) })
	})
	t.Run("in memory", func(t *testing.T) {
		t.Parallel()
		conform(t, func(t *testing.T) (redis.UniversalClient, string) {
			return open(t, "redis://"+miniredis.RunT(t).Addr()), "with * [a-z] ? and \\:"
		})
	})
}

func conform(t *testing.T, open func(t *testing.T) (redis.UniversalClient, string)) {
	deduptest.RunStore(t, func(t *testing.T) dedup.Store {
		client, prefix := open(t)
		store, err := redisdedup.New(client, redisdedup.WithPrefix(prefix))
		require.NoError(t, err)
		return store
	})
	deduptest.RunTokens(t, func(t *testing.T) dedup.Tokens {
		client, prefix := open(t)
		tokens, err := redisdedup.NewTokens(client, redisdedup.WithPrefix(prefix))
		require.NoError(t, err)
		return tokens
	})
}

func TestEntriesExpire(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	client := open(t, "redis://"+server.Addr())
	store, err := redisdedup.New(client, redisdedup.WithRetention(time.Hour))
	require.NoError(t, err)
	key := uuid.New()
	require.NoError(t, store.Add(t.Context(), "billing", key, time.Now()))
	server.FastForward(59 * time.Minute)
	require.NoError(t, store.Add(t.Context(), "billing", key, time.Now()))
	has, err := store.Contains(t.Context(), "billing", key)
	require.NoError(t, err)
	require.True(t, has)
	server.FastForward(2 * time.Minute)
	has, err = store.Contains(t.Context(), "billing", key)
	require.NoError(t, err)
	require.False(t, has, "the first time counts")

	tokens, err := redisdedup.NewTokens(client)
	require.NoError(t, err)
	token := dedup.Token{Consumer: "billing", Value: "one"}
	require.NoError(t, tokens.Create(t.Context(), []dedup.Token{token}, time.Now()))
	server.FastForward(10000 * time.Hour)
	there, err := tokens.Exists(t.Context(), token)
	require.NoError(t, err)
	require.True(t, there, "tokens do not")
	require.Equal(t, []string{"fanout:dedup:token:billing:one"}, server.Keys())
}

// replicas answers WAIT in place of a server that has some.
type replicas struct{ n int }

func (replicas) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (replicas) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (r replicas) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		last := commands[len(commands)-1]
		if last.Name() != "wait" { // a new connection says hello
			return next(ctx, commands)
		}
		if err := next(ctx, commands[:len(commands)-1]); err != nil {
			return err
		}
		last.(*redis.Cmd).SetVal(int64(r.n))
		return nil
	}
}

func TestReplicasAreWaitedFor(t *testing.T) {
	t.Parallel()
	for n, ok := range map[int]bool{0: false, 1: false, 2: true, 3: true} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			client := open(t, "redis://"+miniredis.RunT(t).Addr())
			client.AddHook(replicas{n})
			store, err := redisdedup.New(client, redisdedup.WithReplicas(2, time.Second))
			require.NoError(t, err)
			tokens, err := redisdedup.NewTokens(client, redisdedup.WithReplicas(2, time.Second))
			require.NoError(t, err)
			token := []dedup.Token{{Consumer: "billing", Value: "one"}}
			for _, err := range []error{
				store.Add(t.Context(), "billing", uuid.New(), time.Now()), tokens.Create(t.Context(), token, time.Now()), tokens.Remove(t.Context(), token),
			} {
				if ok {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, redisdedup.ErrReplicas)
					require.ErrorContains(t, err, strconv.Itoa(n)+" of 2 within 1s")
				}
			}
		})
	}
}

func TestReplicasOfAServerThatHasNone(t *testing.T) {
	t.Parallel()
	tokens, err := redisdedup.NewTokens(open(t, testenv.Redis(t)), redisdedup.WithPrefix(testenv.RedisPrefix(t)), redisdedup.WithReplicas(1000, time.Millisecond))
	require.NoError(t, err)
	require.ErrorIs(t, tokens.Create(t.Context(), []dedup.Token{{Consumer: "billing", Value: "one"}}, time.Now()), redisdedup.ErrReplicas)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	slow := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, RouteByLatency: true})
	defer slow.Close()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	for want, c := range map[string]struct {
		client redis.UniversalClient
		option redisdedup.Option
	}{
		"client is missing": {nil, redisdedup.WithPrefix("x")},
		"RouteByLatency":    {slow, redisdedup.WithPrefix("x")},
		"redis.Ring":        {ring, redisdedup.WithPrefix("x")},
		"retention is 0s":   {client, redisdedup.WithRetention(0)},
		"WithReplicas(1":    {client, redisdedup.WithReplicas(1, 0)},
		"WithReplicas(-1":   {client, redisdedup.WithReplicas(-1, time.Second)},
	} {
		_, err := redisdedup.New(c.client, c.option)
		require.ErrorContains(t, err, want)
		_, err = redisdedup.NewTokens(c.client, c.option)
		require.ErrorContains(t, err, want)
	}
}

func TestPurgeLeavesWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	client := open(t, "redis://"+server.Addr())
	tokens, err := redisdedup.NewTokens(client, redisdedup.WithPrefix("ours:"))
	require.NoError(t, err)
	require.NoError(t, server.Set("ours:token:billing:odd", "no time"))
	require.NoError(t, server.Set("theirs:token:billing:1", "1"))
	require.NoError(t, server.Set("ours:handled:billing:1", "1"))
	require.NoError(t, tokens.Create(t.Context(), []dedup.Token{{Consumer: "billing", Value: "1"}}, time.UnixMicro(1)))
	n, err := tokens.PurgeOlderThan(t.Context(), time.Now(), 100)
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	require.Equal(t, []string{"ours:handled:billing:1", "ours:token:billing:odd", "theirs:token:billing:1"}, server.Keys())
}
