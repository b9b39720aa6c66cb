package kafka_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/kafka"
)

// hang has server 2 answer questions and confirm nothing, as one whose disk hangs, while the result is set.
func (c *cluster) hang(t *testing.T) (on *atomic.Bool, asked *atomic.Int64) {
	t.Helper()
	on, asked = &atomic.Bool{}, &atomic.Int64{}
	over, f := make(chan struct{}), c.fake
	f.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		if f.CurrentNode() == 2 && on.Load() {
			asked.Add(1)
			f.SleepControl(func() { <-over })
		}
		return nil, nil, false //nolint:nilnil // the fake cluster answers
	})
	t.Cleanup(sync.OnceFunc(func() { close(over) }))
	return on, asked
}

// A caller whose deadline is shorter than the broker's timeout learns of the same partitions as one that waits.
func TestDeadlineOfTheCaller(t *testing.T) {
	t.Parallel()
	c := startThree(t, 6)
	on, _ := c.hang(t)
	b := open(t, c.seeds(), kafka.Settings{Timeout: 10 * time.Minute})
	n, said := kinds(b.Publish(t.Context(), perKey("there", 24)))
	require.Equal(t, 24, n[""], said)
	on.Store(true)
	for call := range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		n, said = kinds(b.Publish(ctx, perKey("there", 24)))
		cancel()
		assert.Equal(t, 16, n[""], "call %d: %v", call, said)
		assert.Zero(t, n["unavailable broker"], "call %d: %v", call, said)
		assert.Contains(t, said["unavailable partition"], "confirms nothing in time", "call %d", call)
	}
	assert.NotContains(t, said["unavailable partition"], "perhaps published", "it is left alone, and costs nothing")
}

// A server that confirms nothing is asked by one call at a time, and not by one for each of its partitions.
func TestSlownessIsOfTheServer(t *testing.T) {
	t.Parallel()
	c := startThree(t, 36)
	on, asked := c.hang(t)
	on.Store(true)
	b := open(t, c.seeds(), kafka.Settings{Timeout: 3 * time.Second})
	slow := 0
	for i := range 60 {
		n, _ := kinds(b.Publish(t.Context(), []brokers.Message{numbered("there", fmt.Sprint("key-", i), 1)}))
		slow += n["unavailable partition"]
	}
	assert.Greater(t, slow, 10, "they are a third")
	assert.LessOrEqual(t, asked.Load(), int64(4))
}

// The slowness of a server is not that of the one that leads its partitions now.
func TestSlownessEndsWithTheLeader(t *testing.T) {
	t.Parallel()
	c := startThree(t, 6)
	on, _ := c.hang(t)
	on.Store(true)
	b := open(t, c.seeds(), kafka.Settings{Timeout: 6 * time.Second})
	for range 2 {
		n, said := kinds(b.Publish(t.Context(), perKey("there", 24)))
		require.Equal(t, map[string]int{"": 16, "unavailable partition": 8}, n, said)
	}
	for p := range int32(6) {
		require.NoError(t, c.fake.MoveTopicPartition("there", p, 0))
	}
	require.Eventually(t, func() bool { // the client has to learn of it
		n, _ := kinds(b.Publish(t.Context(), perKey("there", 24)))
		return n[""] == 24
	}, patience, 100*time.Millisecond)
}
