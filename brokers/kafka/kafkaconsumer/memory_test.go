package kafkaconsumer

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumer"
)

// MaxOutstandingBytes bounds what is claimed of a partition to one record beyond it, however little
// the records are on the wire: compressed, or made of headers without bytes.
func TestMemoryOfSmallFetches(t *testing.T) {
	somewhere(t, func(t *testing.T, servers []string) {
		for name, c := range map[string]struct {
			record *kgo.Record
			takes  int // at least
		}{
			"Compressed": {&kgo.Record{Value: []byte(strings.Repeat("x", 2<<20))}, 2 << 20},
			"Headers":    {&kgo.Record{Headers: make([]kgo.RecordHeader, 50_000)}, 50_000 * consumer.HeaderBytes},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				newTopic(t, servers).claims(t, c.record, c.takes)
			})
		}
	})
}

// claims requires that two records are claimed, where there is room for one and a half.
func (s *topic) claims(t *testing.T, record *kgo.Record, takes int) {
	t.Helper()
	const n = 12
	release, handled := make(chan struct{}), make(chan struct{})
	c, err := NewConsumer(s.servers, s.group, []string{s.name}, inbox.HandlerFunc(func(ctx context.Context, m *inbox.Message) (inbox.Outcome, error) {
		if m.ID == "other" {
			close(handled)
			return inbox.Handled, nil
		}
		select {
		case <-release:
		case <-ctx.Done():
		}
		return inbox.Skipped, nil
	}), hurried(Config{ConsumerConfig: inbox.ConsumerConfig{
		MaxOutstandingBytes: takes * 3 / 2, Workers: 2, // each record of the partition is of one key
		Decoder: func(raw *inbox.RawMessage) (*envelope.CloudEvent, error) {
			if raw.OrderingKey != "k" {
				return nil, nil //nolint:nilnil // it is one of ours
			}
			return &envelope.CloudEvent{ID: raw.Position, Type: "T"}, nil
		},
	}}))
	require.NoError(t, err)
	client, err := kgo.NewClient(kgo.SeedBrokers(s.servers...), kgo.DefaultProduceTopic(s.name), kgo.DisableClientMetrics(),
		kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.ProducerBatchMaxBytes(maxBatch), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer client.Close()
	var all []*kgo.Record
	for range n {
		one := *record
		one.Key = []byte("k")
		all = append(all, &one)
	}
	require.NoError(t, client.ProduceSync(t.Context(), all...).FirstErr())
	stop := begin(t, c)
	eventually(t, func() bool { all := c.Partitions(); return len(all) == 3 && all[0].Paused }, "it is full")
	s.produce(t, &kgo.Record{Partition: 1, Value: message("", "other").Payload})
	<-handled // what was polled before is claimed
	stats := c.Partitions()[0]
	assert.Equal(t, 2, stats.Claimed)
	assert.GreaterOrEqual(t, stats.Bytes, int64(2*takes))
	close(release)
	eventually(t, func() bool { return c.Stats().Skipped == n }, "all are done")
	require.NoError(t, stop())
}
