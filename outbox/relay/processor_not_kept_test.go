package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// mortal is the store of a process that dies at one of its completions: before it is written, or after that and
// before the answer comes. From then on nothing of the process reaches the database, and its claims stay as they are.
type mortal struct {
	driver.Delivery

	left    atomic.Int64 // completions until then
	written bool         // the last one is
	died    chan struct{}
}

var errDead = errors.New("the process is dead")

func (m *mortal) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	if completion == nil {
		if m.left.Load() <= 0 {
			return driver.Exchanged{}, errDead
		}
		return m.Delivery.Exchange(ctx, nil, claim)
	}
	switch left := m.left.Add(-1); {
	case left > 0:
		return m.Delivery.Exchange(ctx, completion, claim)
	case left == 0:
		if m.written {
			if _, err := m.Delivery.Exchange(ctx, completion, nil); err != nil {
				return driver.Exchanged{}, err
			}
		}
		close(m.died)
	}
	return driver.Exchanged{}, errDead
}

func (m *mortal) Renew(ctx context.Context, lease driver.Lease) (int, error) {
	if m.left.Load() <= 0 {
		return 0, errDead
	}
	return m.Delivery.Renew(ctx, lease)
}

// Where rows go as they are delivered, relays that die at any of their completions lose nothing and break no
// order, and leave nothing behind; what is abandoned stays, and with it the reason.
func TestProcessorKeepsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		tries := map[string]int{}
		broker := &fake{}
		broker.publish = func(_ context.Context, m brokers.Message) error {
			broker.mu.Lock()
			defer broker.mu.Unlock()
			tries[m.ID]++
			switch {
			case strings.HasSuffix(m.ID, "33"):
				return brokers.Permanent(errors.New("no"))
			case strings.HasSuffix(m.ID, "7") && tries[m.ID] == 1:
				return brokers.Retryable(errors.New("not yet"))
			}
			return nil
		}
		r := newRig(t, path, broker, outbox.Policy{
			DeletePublished: true, BatchSize: 20, Lease: 10 * time.Second, PublishTimeout: time.Second, Retry: outbox.Retry{BaseDelay: time.Minute},
		})
		t.Cleanup(func() { _ = r.db.Close() })
		const rows, keys = 400, 7
		for i := range rows {
			r.insert(fmt.Sprint("key-", i%keys), fmt.Sprintf("m%03d", i))
		}
		for kills := range 6 {
			store := &mortal{Delivery: r.store, written: kills%2 == 0, died: make(chan struct{})}
			store.left.Store(int64(1 + kills))
			proc, err := relay.NewProcessor(relay.ProcessorConfig{
				Database: "test", Broker: "b", Store: store, Target: broker, Policy: r.policy, Log: slog.New(slog.DiscardHandler),
			})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- proc.Run(ctx) }()
			<-store.died
			cancel()
			require.NoError(t, <-done)
		}
		require.NotEqual(t, "0", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'processing'"), "the dead have left claims")
		r.start()
		r.until(24*time.Hour, func() bool { return r.open() == "0" })
		r.stop()

		assert.Equal(t, "4", r.query("SELECT count(*) FROM outbox_messages"))
		assert.Equal(t, "m033,m133,m233,m333", r.query("SELECT group_concat(CAST(payload AS TEXT)) FROM outbox_messages WHERE status = 'abandoned' AND last_error LIKE '%permanent%'"))
		assert.Equal(t, "0", r.query("SELECT count(*) FROM outbox_messages_key_blocks"))
		first := map[string]bool{}
		last := map[int]int{}
		for _, name := range broker.delivered() {
			if first[name] {
				continue // a duplicate, after a completion that was not written
			}
			first[name] = true
			var n int
			_, err := fmt.Sscanf(name, "m%d", &n)
			require.NoError(t, err)
			before, there := last[n%keys]
			require.True(t, !there || before < n, "%s was delivered before %d", name, before)
			last[n%keys] = n
		}
		assert.Len(t, first, rows-4)
		assert.Less(t, len(broker.delivered()), rows+6*2*2*20, "few are sent twice: what was with the dead")
		assert.True(t, slices.ContainsFunc(broker.delivered(), func(name string) bool { return strings.HasSuffix(name, "7") }))
	})
}
