package redisstreams_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/redisstreams"
)

// old fills a stream with entries of some age, by the server's clock.
func (s *server) old(t *testing.T, stream string, age time.Duration, n int) {
	t.Helper()
	client := s.client()
	defer client.Close()
	now, err := client.Time(t.Context()).Result()
	require.NoError(t, err)
	_, err = client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range n {
			p.XAdd(t.Context(), &redis.XAddArgs{
				Stream: stream, ID: fmt.Sprintf("%d-%d", now.Add(-age).UnixMilli(), i), Values: []any{"data", "old", "id", fmt.Sprint(age)},
			})
		}
		return nil
	})
	require.NoError(t, err)
}

// Entries go by their age: whole nodes of them, or to the entry; and none of those that are young
// enough.
func TestMaxAge(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for name, c := range map[string]struct {
		approx bool
		most   int // of the 250 that are too old
	}{
		"exact": {false, 0}, "approx": {true, 99}, // a node has 100 entries
	} {
		for path, keys := range map[string]int{"cold keys": 5, "hot keys": 1} {
			t.Run(name+" "+path, func(t *testing.T) {
				t.Parallel()
				stream := name + path
				s.old(t, stream, 61*time.Minute, 250)
				s.old(t, stream, 59*time.Minute, 30)
				b := open(t, s.url(), redisstreams.Settings{MaxAge: time.Hour, Exact: !c.approx})
				assert.Equal(t, map[string]int{"": 5}, verdicts(b.Publish(t.Context(), many(stream, 5, keys))))
				count := map[string]int{}
				for _, id := range ids(received(t, b.Client(), stream)) {
					count[id]++
				}
				assert.Equal(t, 30, count["59m0s"])
				assert.LessOrEqual(t, count["1h1m0s"], c.most)
				assert.Equal(t, 1, count["id-4"])
			})
		}
	}
}

// Of two limits the age holds. A limit that makes no sense counts as not given.
func TestTrimmingSettings(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for name, c := range map[string]struct {
		settings redisstreams.Settings
		want     int
	}{
		"neither":                       {redisstreams.Settings{}, 55},
		"length":                        {redisstreams.Settings{MaxLen: 10, Exact: true}, 10},
		"both":                          {redisstreams.Settings{MaxLen: 10, MaxAge: time.Hour, Exact: true}, 5},
		"nothing":                       {redisstreams.Settings{MaxLen: -10, MaxAge: -time.Hour, Exact: true}, 55},
		"older than the server's clock": {redisstreams.Settings{MaxAge: 1 << 62, Exact: true}, 55},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.old(t, name, 2*time.Hour, 50)
			b := open(t, s.url(), c.settings)
			assert.Equal(t, map[string]int{"": 5}, verdicts(b.Publish(t.Context(), many(name, 5, 5))))
			assert.Equal(t, c.want, s.length(t, name))
		})
	}
}

// A limit of memory holds with an age, too: trimming comes with the XADD, and is not a write of its
// own that lets it pass.
func TestMaxAgeOutOfMemory(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.old(t, "s", 2*time.Hour, 300)
	s.do(t, "CONFIG", "SET", "maxmemory", 1)
	b := open(t, s.url(), redisstreams.Settings{MaxAge: time.Hour, Exact: true})
	results := b.Publish(context.Background(), many("s", 10, 10))
	assert.Equal(t, map[string]int{"unavailable broker": 10}, verdicts(results))
	assert.Equal(t, 300, s.length(t, "s"))
}
