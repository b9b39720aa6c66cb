package kafkaconsumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gorm-fanout/fanout/inbox"
)

// A message that fails for long pins the offset of its partition. Behind it no more is done than
// comes again after a restart within bounds, which is said once, with the age and the id of the
// message; other partitions go on. When it is done, so does this one.
func TestPinnedPartition(t *testing.T) {
	somewhere(t, func(t *testing.T, servers []string) {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprint("Restart=", restart), func(t *testing.T) {
				t.Parallel()
				newTopic(t, servers).pinned(t, restart)
			})
		}
	})
}

func (s *topic) pinned(t *testing.T, restart bool) {
	t.Helper()
	const most, room, all, age = 500, 20, 2000, 14 * time.Minute
	const bound = most + room + pollMessages
	var healed atomic.Bool
	var mu sync.Mutex
	times := map[string]int{}
	var log lines
	newConsumer := func() *Consumer {
		c, err := NewConsumer(s.servers, s.group, []string{s.name}, inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
			if m.ID == "held" && !healed.Load() {
				return "", inbox.Unavailable(errors.New("out"))
			}
			mu.Lock()
			defer mu.Unlock()
			times[m.ID]++
			return inbox.Handled, nil
		}), hurried(Config{MaxUncommittedMessages: most, ConsumerConfig: inbox.ConsumerConfig{
			MaxOutstandingMessages: room, Log: slog.New(slog.NewTextHandler(&log, nil)),
			Retry: inbox.Retry{BaseDelay: time.Millisecond, MaxDelay: 10 * time.Millisecond},
		}}))
		require.NoError(t, err)
		return c
	}
	records := []*kgo.Record{{Key: []byte("k"), Value: message("", "held").Payload, Timestamp: time.Now().Add(-age)}}
	for n := range all {
		records = append(records, &kgo.Record{Value: message("", fmt.Sprint(n)).Payload})
	}
	s.produce(t, records...)
	c := newConsumer()
	stop := begin(t, c)
	eventually(t, func() bool {
		stats := c.Partitions()
		return len(stats) == 3 && stats[0].Paused && stats[0].Claimed == 1 && stats[0].Uncommitted >= most
	}, "it is pinned")
	stats := c.Partitions()[0]
	assert.Equal(t, []any{s.name, int32(0), int64(0), "held"}, []any{stats.Topic, stats.Partition, stats.Next, stats.MessageID})
	assert.GreaterOrEqual(t, stats.Age, age)
	var lag inbox.Lag
	eventually(t, func() bool { // what was read before may still come
		lags, err := c.Lag(t.Context())
		require.NoError(t, err)
		lag = lags[0]
		return lag.Pending == int64(c.Partitions()[0].Uncommitted)+1
	}, "it has the same figures")
	assert.Equal(t, inbox.Lag{Source: s.name, Waiting: inbox.UnknownLag, Pending: lag.Pending, Oldest: lag.Oldest}, lag)
	assert.GreaterOrEqual(t, lag.Oldest, age)
	var others []*kgo.Record
	for n := range 2 * room {
		others = append(others, &kgo.Record{Partition: 1, Value: message("", fmt.Sprint("other ", n)).Payload})
	}
	s.produce(t, others...)
	eventually(t, func() bool { return c.Partitions()[1].Next == 2*room }, "another partition goes on")
	assert.LessOrEqual(t, c.Stats().Handled, int64(bound+2*room))
	assert.Equal(t, 1, strings.Count(log.String(), "partition not read: too many messages uncommitted"))
	assert.Contains(t, log.String(), "partition=0 offset=0 message_id=held age=14m")
	assert.NotContains(t, log.String(), "partition read again")

	if restart {
		require.NoError(t, stop())
		c = newConsumer()
		healed.Store(true)
		stop = begin(t, c)
	} else {
		healed.Store(true)
		eventually(t, func() bool { return strings.Count(log.String(), "partition read again") == 1 }, "its end is said")
	}
	eventually(t, func() bool { return s.unconfirmed(t) == 0 }, "all are done")
	assert.Equal(t, PartitionStats{Topic: s.name, Partition: 0, Next: all + 1}, c.Partitions()[0])
	require.NoError(t, stop())
	again := 0
	for _, n := range times {
		again += n - 1
	}
	assert.Len(t, times, 1+all+2*room)
	assert.LessOrEqual(t, again, bound, "what came again")
}

// produce produces to partitions that the records name.
func (s *topic) produce(t *testing.T, records ...*kgo.Record) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.servers...), kgo.DefaultProduceTopic(s.name), kgo.DisableClientMetrics(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, client.ProduceSync(t.Context(), records...).FirstErr())
}
