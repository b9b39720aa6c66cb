package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// gauge is a store that tells how many exchanges were in progress at once.
type gauge struct {
	*Store

	now, most atomic.Int64
}

func (g *gauge) Exchange(ctx context.Context, s *driver.Completion, c *driver.Claim) (driver.Exchanged, error) {
	now := g.now.Add(1)
	defer g.now.Add(-1)
	for most := g.most.Load(); now > most; most = g.most.Load() {
		g.most.CompareAndSwap(most, now)
	}
	return g.Store.Exchange(ctx, s, c)
}

// block is a broker that confirms nothing before it is opened.
type block struct {
	waiting atomic.Int64
	open    chan struct{}
}

func (g *block) Publish(_ context.Context, messages []brokers.Message) []brokers.Result {
	g.waiting.Add(1)
	<-g.open
	return make([]brokers.Result, len(messages))
}
func (*block) Capabilities() brokers.Capabilities { return brokers.Capabilities{Ordering: true} }
func (*block) Ping(context.Context) error         { return nil }
func (*block) Close(context.Context) error        { return nil }

// TestOverlap: a worker claims the next batch while one is published; and no more exchanges are
// in progress than there are workers, however many batches are.
func TestOverlap(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, outbox.Shards} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			t.Parallel()
			store := &gauge{Store: openStore(t, testenv.Postgres(t), fmt.Sprintf("overlap_%d", workers))}
			_, err := store.Migrate(t.Context())
			require.NoError(t, err)
			_, err = store.pool.Exec(t.Context(), fmt.Sprintf(`INSERT INTO %s (message_id, target_broker, stream, type, ordering_key, payload)
				SELECT gen_random_uuid(), 'b', 's', 't', 'key-' || n, 'x' FROM generate_series(1, 400) AS n`, store.table))
			require.NoError(t, err)
			broker := &block{open: make(chan struct{})}
			proc, err := relay.NewProcessor(relay.ProcessorConfig{
				Database: "test", Broker: "b", Store: store, Target: broker, Log: slog.New(slog.DiscardHandler),
				Policy: outbox.Policy{Workers: workers, BatchSize: 10, PollMin: time.Millisecond, PollMax: 10 * time.Millisecond},
			})
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- proc.Run(ctx) }()
			defer func() { stop(); require.NoError(t, <-done) }()
			batches := int64(min(2*workers, outbox.Shards))
			assert.Eventually(t, func() bool { return broker.waiting.Load() == batches }, time.Minute, time.Millisecond, "of each shard one, before any is confirmed")
			close(broker.open)
			assert.Eventually(t, func() bool { return proc.Stats().Published == 400 }, time.Minute, time.Millisecond)
			assert.LessOrEqual(t, store.most.Load(), int64(workers), "exchanges at once")
		})
	}
}
