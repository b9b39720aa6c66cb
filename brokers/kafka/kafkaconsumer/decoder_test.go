package kafkaconsumer

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
)

// A decoder that takes longer for what is polled than the cluster waits for a member costs that member
// nothing: partitions move in time, and nothing that is done comes again.
func TestSlowDecoderDelaysNoRebalance(t *testing.T) {
	t.Parallel()
	const messages = 300
	s := newTopic(t, startFake(t))
	var records []*kgo.Record
	for n := range messages {
		records = append(records, &kgo.Record{Key: fmt.Append(nil, n%20), Value: fmt.Append(nil, n)})
	}
	s.produce(t, records...)
	var (
		asked atomic.Int64
		mu    sync.Mutex
		times = map[string]int{}
	)
	handler := inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
		mu.Lock()
		defer mu.Unlock()
		times[m.ID]++
		return inbox.Handled, nil
	})
	start := func() (stop func() error) {
		c, err := NewConsumer(s.servers, s.group, []string{s.name}, handler, hurried(Config{
			Client: []kgo.Opt{kgo.RebalanceTimeout(time.Second)},
			ConsumerConfig: inbox.ConsumerConfig{Workers: 2, Decoder: func(raw *inbox.RawMessage) (*envelope.CloudEvent, error) {
				asked.Add(1)
				time.Sleep(20 * time.Millisecond)
				return &envelope.CloudEvent{ID: string(raw.Payload), Type: "T"}, nil
			}},
		}))
		require.NoError(t, err)
		return begin(t, c)
	}
	first := start()
	eventually(t, func() bool { return asked.Load() > 5 }, "the first member reads")
	second := start()
	eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(times) == messages
	}, "all are handled")
	require.NoError(t, first())
	require.NoError(t, second())
	for n := range messages {
		assert.Equal(t, 1, times[strconv.Itoa(n)], "message %d", n)
	}
}
