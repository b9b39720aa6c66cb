package fanout_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// TestRedisSettings: what the file says about a broker of type redis reaches the server.
func TestRedisSettings(t *testing.T) {
	t.Parallel()
	url := testenv.Redis(t)
	settings, err := redis.ParseURL(url)
	require.NoError(t, err)
	client := redis.NewClient(settings)
	t.Cleanup(func() { require.NoError(t, client.Close()) })

	for name, c := range map[string]struct {
		settings string
		want     int64 // of 300 old entries and 10 new ones
		backfill int64
	}{
		"nothing":     {"", 310, 0},
		"max_len":     {"max_len: 7, approximate: false", 7, 0},
		"approximate": {"max_len: 7", 10, 0}, // by nodes of a hundred entries
		"max_age":     {"max_age: 1h, approximate: false", 10, 0},
		"backfill":    {"backfill: {below: -10}", 309, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := openRedis(t, url, c.settings)
			stream := testenv.RedisPrefix(t) + name
			for i := range 300 {
				id := fmt.Sprintf("%d-%d", time.Now().Add(-2*time.Hour).UnixMilli(), i)
				require.NoError(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, ID: id, Values: []any{"data", ""}}).Err())
			}
			for i, result := range b.Publish(t.Context(), numbered(stream, 10)) {
				require.NoError(t, result.Err, i)
			}
			assert.Equal(t, c.want, client.XLen(t.Context(), stream).Val())
			assert.Equal(t, c.backfill, client.XLen(t.Context(), stream+":backfill").Val())
		})
	}
	t.Run("replicas", func(t *testing.T) {
		t.Parallel()
		b := openRedis(t, url, "replicas: {count: 99, timeout: 20ms}")
		results := b.Publish(t.Context(), numbered(testenv.RedisPrefix(t)+"replicas", 1))
		require.ErrorContains(t, results[0].Err, "of 99 acknowledged within 20ms")
	})
}

func openRedis(t *testing.T, url, settings string) brokers.Broker {
	t.Helper()
	cfg, err := config.Parse([]byte("brokers: {default: {type: redis, url: '"+url+"', "+settings+"}}\n"), "fanout.yaml")
	require.NoError(t, err)
	b, err := fanout.OpenBroker(t.Context(), cfg, "default")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close(context.Background())) })
	return b
}

// numbered makes messages of priorities from -11 upwards.
func numbered(stream string, n int) []brokers.Message {
	msgs := make([]brokers.Message, n)
	for i := range msgs {
		msgs[i] = brokers.Message{ID: fmt.Sprint(i), Destination: stream, Type: "T.v1", Payload: []byte("{}"), Priority: i - 11}
	}
	return msgs
}
