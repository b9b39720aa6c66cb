package redisdedup_test

import (
	"context"
	"strconv"
	"testing"
	"time"

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

func open(t *testing.T) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(testenv.Redis(t))
	require.NoError(t, err)
	client := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// strange has all characters that a pattern of SCAN gives a meaning.
const strange = "with * [a-z] ? and \\:"

func TestConformance(t *testing.T) {
	t.Parallel()
	client := open(t)
	prefix := func(t *testing.T) redisdedup.Option { return redisdedup.WithPrefix(testenv.RedisPrefix(t) + strange) }
	deduptest.RunStore(t, func(t *testing.T) dedup.Store {
		store, err := redisdedup.New(client, prefix(t))
		require.NoError(t, err)
		return store
	})
	deduptest.RunTokens(t, func(t *testing.T) dedup.Tokens {
		tokens, err := redisdedup.NewTokens(client, prefix(t))
		require.NoError(t, err)
		return tokens
	})
}

// An entry expires after the retention, counted from the first time. A token never expires.
func TestEntriesExpire(t *testing.T) {
	t.Parallel()
	client, prefix := open(t), testenv.RedisPrefix(t)
	store, err := redisdedup.New(client, redisdedup.WithPrefix(prefix), redisdedup.WithRetention(time.Hour))
	require.NoError(t, err)
	id := uuid.New()
	require.NoError(t, store.Add(t.Context(), "billing", id, time.Now()))
	keys, err := client.Keys(t.Context(), prefix+"*").Result()
	require.NoError(t, err)
	require.Len(t, keys, 1)
	left, err := client.PTTL(t.Context(), keys[0]).Result()
	require.NoError(t, err)
	require.Greater(t, left, 50*time.Minute)
	require.LessOrEqual(t, left, time.Hour)

	require.NoError(t, client.PExpire(t.Context(), keys[0], 30*time.Minute).Err())
	require.NoError(t, store.Add(t.Context(), "billing", id, time.Now()))
	left, err = client.PTTL(t.Context(), keys[0]).Result()
	require.NoError(t, err)
	require.LessOrEqual(t, left, 30*time.Minute, "a second Add does not extend the entry")

	tokens, err := redisdedup.NewTokens(client, redisdedup.WithPrefix(prefix))
	require.NoError(t, err)
	require.NoError(t, tokens.Create(t.Context(), []dedup.Token{{Consumer: "billing", Value: "one"}}, time.Now()))
	left, err = client.PTTL(t.Context(), prefix+"token:billing:one").Result()
	require.NoError(t, err)
	require.Equal(t, time.Duration(-1), left, "the key exists and has no expiry")
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
			client, prefix := open(t), redisdedup.WithPrefix(testenv.RedisPrefix(t))
			client.AddHook(replicas{n})
			store, err := redisdedup.New(client, prefix, redisdedup.WithReplicas(2, time.Second))
			require.NoError(t, err)
			tokens, err := redisdedup.NewTokens(client, prefix, redisdedup.WithReplicas(2, time.Second))
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

func TestServerWithoutReplicas(t *testing.T) {
	t.Parallel()
	tokens, err := redisdedup.NewTokens(open(t), redisdedup.WithPrefix(testenv.RedisPrefix(t)), redisdedup.WithReplicas(1000, time.Millisecond))
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

// A purge deletes the tokens below its prefix, and no other key.
func TestPurgeStaysBelowItsPrefix(t *testing.T) {
	t.Parallel()
	client, prefix := open(t), testenv.RedisPrefix(t)
	tokens, err := redisdedup.NewTokens(client, redisdedup.WithPrefix(prefix+"ours:"))
	require.NoError(t, err)
	others := []string{prefix + "ours:handled:billing:1", prefix + "ours:token:billing:odd", prefix + "theirs:token:billing:1"}
	for _, key := range others {
		require.NoError(t, client.Set(t.Context(), key, "no time", 0).Err())
	}
	require.NoError(t, tokens.Create(t.Context(), []dedup.Token{{Consumer: "billing", Value: "1"}}, time.UnixMicro(1)))
	n, err := tokens.PurgeOlderThan(t.Context(), time.Now(), 100)
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	left, err := client.Keys(t.Context(), prefix+"*").Result()
	require.NoError(t, err)
	require.ElementsMatch(t, others, left)
}
