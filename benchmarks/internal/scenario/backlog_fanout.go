package scenario

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// drainPatience is how long a drain may take.
const drainPatience = 10 * time.Minute

// tally is a store that counts round trips, and tells when so many rows are completed.
type tally struct {
	driver.Store

	rows      int64
	trips     atomic.Int64
	completed atomic.Int64
	done      chan struct{}
}

// Exchange implements driver.Delivery.
func (t *tally) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	t.trips.Add(1)
	exchanged, err := t.Store.Exchange(ctx, completion, claim)
	if exchanged.Completed != nil {
		rows := int64(len(completion.Published) - exchanged.Completed.Lost)
		if rows > 0 && t.completed.Add(rows) == t.rows {
			close(t.done)
		}
	}
	return exchanged, err
}

// Ready implements driver.Delivery.
func (t *tally) Ready(ctx context.Context, broker string, busy wakeup.Set) (driver.Readiness, error) {
	t.trips.Add(1)
	return t.Store.Ready(ctx, broker, busy)
}

// Renew implements driver.Delivery.
func (t *tally) Renew(ctx context.Context, lease driver.Lease) (int, error) {
	t.trips.Add(1)
	return t.Store.Renew(ctx, lease)
}

// fanouts are the cases of Fanout itself, with its own number of workers or with each of those that
// are wanted.
func (b Backlog) fanouts() (all []*contest) {
	counts := b.Workers
	if len(counts) == 0 {
		counts = []int{0}
	}
	for _, n := range counts {
		suffix := ""
		if n > 0 {
			suffix = fmt.Sprintf(", %d workers", n)
		}
		add := func(c contest) {
			c.name += suffix
			c.rows, c.ordered, c.connections = b.Rows/b.Parts, c.kind != unordered, int32(max(n, outbox.Shards)+2) //nolint:gosec // a few
			c.drain = byFanout(outbox.Policy{BatchSize: b.Batch, Workers: n, Unordered: c.kind == unordered, DeletePublished: c.notKept})
			all = append(all, &c)
		}
		for _, keys := range b.Keys {
			c := contest{name: fmt.Sprintf("fanout, %d keys", keys), kind: manyKeys, keys: keys}
			if keys == 1 {
				c.name, c.kind = "fanout, 1 key", oneKey
			}
			add(c)
			if b.NotKept {
				c := c
				c.name, c.kind, c.notKept = c.name+", not kept", asDelivered, true
				add(c)
			}
			if b.Partitioned {
				c.name, c.kind, c.byDay = c.name+", by day", asDelivered, true
				add(c)
			}
		}
		add(contest{name: "fanout, hot key", kind: manyKeys, keys: b.HotKeys, hot: hotShare})
		add(contest{name: "fanout, unordered", kind: unordered, keys: someKeys})
	}
	return all
}

// openBroker opens the broker that is drained to.
func (s *setup) openBroker() (brokers.Broker, error) {
	if s.elsewhere != nil {
		return s.elsewhere.broker()
	}
	return redisstreams.Open(redisstreams.Settings{URL: adapter.Secret(s.redis)})
}

// byFanout drains with a processor that has this policy.
func byFanout(policy outbox.Policy) func(context.Context, *setup) error {
	return func(ctx context.Context, s *setup) (err error) {
		broker, err := s.openBroker()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, broker.Close(context.WithoutCancel(ctx))) }()
		store := &tally{Store: s.table.Store, rows: s.rows, done: make(chan struct{})}
		processor, err := relay.NewProcessor(relay.ProcessorConfig{
			Database: "bench", Broker: drainBroker, Store: store, Target: broker, Log: slog.New(slog.DiscardHandler),
			Policy: policy,
		})
		if err != nil {
			return err
		}
		running, stop := context.WithCancel(ctx)
		defer stop()
		var group errgroup.Group
		group.Go(func() error { return processor.Run(running) })
		patience := time.NewTimer(drainPatience)
		defer patience.Stop()
		select {
		case <-store.done:
			s.trips = store.trips.Load()
		case <-ctx.Done():
			err = ctx.Err()
		case <-patience.C:
			err = fmt.Errorf("scenario: %d of %d rows were completed in %s", store.completed.Load(), s.rows, drainPatience)
		}
		stop()
		return errors.Join(err, group.Wait())
	}
}
