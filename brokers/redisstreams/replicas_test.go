package redisstreams_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// What is confirmed is on the replica. A replica that hangs or is gone is an outage, which adds no
// copy per attempt.
func TestReplicas(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
	primary := startServer(t)
	replica := startReplica(t, primary)
	b := open(t, primary.url(), redisstreams.Settings{Replicas: 1, ReplicaTimeout: 100 * time.Millisecond})
	patient := open(t, primary.url(), redisstreams.Settings{Replicas: 1, ReplicaTimeout: 10 * time.Second})

	mixed := append(many("s", 200, 150), many("s", 100, 3)...) // plain commands, and the script
	require.Equal(t, map[string]int{"": 300}, verdicts(patient.Publish(t.Context(), mixed)))
	assert.Equal(t, 300, replica.length(t, "s"), "at once, not in a moment")
	require.NoError(t, patient.Ping(t.Context()))

	for name, outage := range map[string]func() (end func()){
		"hangs": func() func() { return replica.freeze(t) },
		"gone": func() func() {
			replica.kill(t)
			return func() {
				replica.start(t)
				replica.awaitLink(t, primary)
			}
		},
	} {
		before := primary.length(t, "s")
		end := outage()
		results := b.Publish(t.Context(), mixed)
		assert.Equal(t, map[string]int{"unavailable broker": 100, "not_sent": 200}, verdicts(results), name)
		require.ErrorContains(t, results[0].Err, "too few replicas: 0 of 1 acknowledged within 100ms")
		require.Equal(t, before+100, primary.length(t, "s"), "%s: they were added", name)
		for range 3 {
			results := b.Publish(t.Context(), append(mixed, many("u", 10, 10)...))
			assert.Equal(t, map[string]int{"unavailable broker": 100, "not_sent": 210}, verdicts(results), name)
		}
		assert.Equal(t, before+100, primary.length(t, "s"), "%s: and not again with each attempt", name)
		require.ErrorContains(t, b.Ping(t.Context()), "too few replicas")

		end()
		soon(t, "the replica is back", func() bool { return b.Ping(t.Context()) == nil })
		require.Equal(t, map[string]int{"": 300}, verdicts(patient.Publish(t.Context(), mixed)))
		soon(t, "the broker that had stopped carries on", func() bool { return b.Publish(t.Context(), mixed[:1])[0].Err == nil })
		assert.Equal(t, primary.length(t, "s"), replica.length(t, "s"), name)
	}
}

// The question for replicas goes over the connection that has written: over any other, the answer
// is about something else.
func TestReplicasAreAskedOnTheSameConnection(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
	primary := startServer(t)
	startReplica(t, primary)
	msgs := append(many("s", 60, 50), message("s", "", 60))
	// The first time, the server learns the script, and is asked whether it knows transactions.
	wantOfOne := "xadd evalsha multi exec wait eval wait xadd multi xadd exec wait"
	want := "xadd evalsha wait eval wait xadd evalsha wait"

	b := open(t, primary.url(), redisstreams.Settings{Replicas: 1, ReplicaTimeout: 10 * time.Second})
	var sent, sentToNodes names
	b.Client().AddHook(sent.hook())
	for range 2 {
		require.Equal(t, map[string]int{"": 61}, verdicts(b.Publish(t.Context(), msgs)))
	}
	assert.Equal(t, wantOfOne, sent.take())

	c := startCluster(t, 1)
	c.replicate(t, c.nodes[0])
	client := c.client(t)
	client.OnNewNode(func(node *redis.Client) { node.AddHook(adding(sentToNodes.hook())) })
	sharded := redisstreams.New(client, redisstreams.Settings{Replicas: 1, ReplicaTimeout: 10 * time.Second})
	for range 2 {
		results := sharded.Publish(t.Context(), msgs)
		require.Equal(t, map[string]int{"": 61}, verdicts(results), "%v", results[0].Err)
	}
	assert.Equal(t, want, sentToNodes.take())
}

// adding passes the pipelines to a hook that add messages, and not those by which a client of a cluster finds its nodes.
func adding(to hook) hook {
	return func(ctx context.Context, cmds []redis.Cmder, send func([]redis.Cmder) error) error {
		if name := cmds[0].Name(); name == "xadd" || strings.HasPrefix(name, "eval") {
			return to(ctx, cmds, send)
		}
		return send(cmds)
	}
}

// The primary dies, Sentinel promotes the replica, and nothing is lost that was confirmed: it was
// on the replica.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
	w := startWatched(t)
	primary, replica := w.primary, w.replica
	b := redisstreams.New(w.client(t), redisstreams.Settings{Replicas: 1, ReplicaTimeout: 500 * time.Millisecond})
	t.Cleanup(func() { require.NoError(t, b.Close(context.Background())) })

	f := feed(t, b, "s", "u")
	f.progress(t, 300, "s", "u")
	primary.kill(t)
	soon(t, "the replica is promoted", func() bool { return replica.role(t) == "master" })
	primary.start(t)
	primary.do(t, "REPLICAOF", "127.0.0.1", replica.port) // Sentinel does it too, after half a minute
	f.progress(t, 300, "s", "u")
	f.stop(t, func(stream string) []brokers.Message {
		reader := replica.client()
		defer reader.Close()
		return received(t, reader, stream)
	})
	assert.True(t, f.saw("unavailable broker"))
}

func (s *server) role(t *testing.T) string {
	t.Helper()
	client := s.client()
	defer client.Close()
	answer, err := client.Do(t.Context(), "ROLE").Slice()
	if err != nil {
		return err.Error() // it starts, or changes its role
	}
	return answer[0].(string)
}
