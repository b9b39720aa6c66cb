package redisdedup_test

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/inbox/dedup"
	"github.com/gorm-fanout/fanout/inbox/dedup/redisdedup"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// losing is a connection that breaks after a SET was sent and before its answer. The write itself
// happens, now or much later.
type losing struct {
	net.Conn

	sets *atomic.Int64
	gone atomic.Bool
}

func (c *losing) Write(b []byte) (int, error) {
	if bytes.Contains(bytes.ToLower(b), []byte("\r\nset\r\n")) {
		c.sets.Add(1)
		c.gone.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *losing) Read(b []byte) (int, error) {
	if c.gone.Load() {
		return 0, net.ErrClosed
	}
	return c.Conn.Read(b)
}

// The client must not retry a creation: the first one can still be on its way when the second is
// answered, and would then bring back a token that was sent and used up meanwhile. The caller gets an
// error and draws another token.
func TestCreationIsSentOnce(t *testing.T) {
	t.Parallel()
	for _, options := range [][]redisdedup.Option{nil, {redisdedup.WithReplicas(1, time.Millisecond)}} {
		var sets atomic.Int64
		prefix := testenv.RedisPrefix(t)
		client := redis.NewClient(&redis.Options{
			Addr: open(t).Options().Addr, MaxRetries: 3, MinRetryBackoff: time.Millisecond, MaxRetryBackoff: time.Millisecond,
			Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
				return &losing{Conn: conn, sets: &sets}, err
			},
		})
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		tokens, err := redisdedup.NewTokens(client, append(options, redisdedup.WithPrefix(prefix))...)
		require.NoError(t, err)
		require.Error(t, tokens.Create(t.Context(), []dedup.Token{{Consumer: "billing", Value: "one"}}, time.Now()))
		require.EqualValues(t, 1, sets.Load())

		sets.Store(0) // other commands are retried
		require.NoError(t, client.Ping(t.Context()).Err())
		require.Error(t, client.Set(t.Context(), prefix+"other", 1, 0).Err())
		require.EqualValues(t, 4, sets.Load())
	}
}
