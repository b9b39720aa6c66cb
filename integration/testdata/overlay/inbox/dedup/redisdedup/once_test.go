// This file is laid over the package when make test builds its tests: the Redis in memory is not among
// the requirements of this module, which has to stay small for those who write.
package redisdedup_test

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/inbox/dedup"
	"github.com/gorm-fanout/fanout/inbox/dedup/redisdedup"
)

// losing is a connection whose answers to SET get lost, together with the connection. The write
// itself is done, now or much later.
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

// A client that sent a creation again by itself would go on after the second one, while the first
// can still be on its way: it would bring back a token that was sent and used up meanwhile. Whoever
// is notified of an error draws another token.
func TestACreationIsSentOnce(t *testing.T) {
	t.Parallel()
	for _, options := range [][]redisdedup.Option{nil, {redisdedup.WithReplicas(1, time.Millisecond)}} {
		var sets atomic.Int64
		client := redis.NewClient(&redis.Options{
			Addr: miniredis.RunT(t).Addr(), MaxRetries: 3, MinRetryBackoff: time.Millisecond, MaxRetryBackoff: time.Millisecond,
			Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
				return &losing{Conn: conn, sets: &sets}, err
			},
		})
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		tokens, err := redisdedup.NewTokens(client, options...)
		require.NoError(t, err)
		require.Error(t, tokens.Create(t.Context(), []dedup.Token{{Consumer: "billing", Value: "one"}}, time.Now()))
		require.EqualValues(t, 1, sets.Load())

		sets.Store(0) // what may be done twice is
		require.NoError(t, client.Ping(t.Context()).Err())
		require.Error(t, client.Set(t.Context(), "other", 1, 0).Err())
		require.EqualValues(t, 4, sets.Load())
	}
}
