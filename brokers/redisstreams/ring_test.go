package redisstreams_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
)

// A ring of servers that know nothing of each other: each stream is on one of them, and so are its
// replicas.
func TestRing(t *testing.T) {
	t.Parallel()
	first, second := startServer(t), startServer(t)
	startReplica(t, first)
	client := redis.NewRing(&redis.RingOptions{
		Addrs: map[string]string{"first": first.addr(), "second": second.addr()}, ContextTimeoutEnabled: true, MaxRetries: -1,
		DialerRetries: 1, HeartbeatFrequency: time.Hour, // or the ring gives streams of a server that is out to another one
	})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	var msgs []brokers.Message
	for i := range 600 {
		stream := fmt.Sprint("stream-", i%12)
		msgs = append(msgs, message(stream, fmt.Sprint(stream, "-", i%60), i))
	}
	plain := redisstreams.New(client, redisstreams.Settings{})
	require.Equal(t, map[string]int{"": 600}, verdicts(plain.Publish(t.Context(), msgs)))

	replicated := redisstreams.New(client, redisstreams.Settings{Replicas: 1, ReplicaTimeout: 2 * time.Second})
	for i, result := range replicated.Publish(t.Context(), msgs) {
		onFirst := first.length(t, msgs[i].Destination) > 0
		require.Equal(t, onFirst, result.Err == nil, "%s: %v", msgs[i].Destination, result.Err)
	}

	second.kill(t)
	verdict := verdicts(plain.Publish(t.Context(), msgs))
	assert.Positive(t, verdict[""], "%v", verdict)
	assert.Positive(t, verdict["unavailable destination"], "%v", verdict)
	assert.Equal(t, 600, verdict[""]+verdict["unavailable destination"]+verdict["not_sent"], "%v", verdict)
}
