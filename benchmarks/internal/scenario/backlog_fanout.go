package scenario

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/outbox"
)

// drainPatience is how long a drain may take.
const drainPatience = 10 * time.Minute

// tally is a store that counts round trips, and tells when so many rows are settled.
type tally struct {
	outbox.Store

	rows    int64
	trips   atomic.Int64
	settled atomic.Int64
	done    chan struct{}
}

// Exchange implements outbox.Store.
func (t *tally) Exchange(ctx context.Context, settlement *outbox.Settlement, claim *outbox.Claim) (outbox.Exchanged, error) {
	t.trips.Add(1)
	exchanged, err := t.Store.Exchange(ctx, settlement, claim)
	if exchanged.Settled != nil {
		rows := int64(len(settlement.Published) - exchanged.Settled.Lost)
		if rows > 0 && t.settled.Add(rows) == t.rows {
			close(t.done)
		}
	}
	return exchanged, err
}

// Ready implements outbox.Store.
func (t *tally) Ready(ctx context.Context, broker string) (outbox.Readiness, error) {
	t.trips.Add(1)
	return t.Store.Ready(ctx, broker)
}

// Renew implements outbox.Store.
func (t *tally) Renew(ctx context.Context, lease outbox.Lease) (int, error) {
	t.trips.Add(1)
	return t.Store.Renew(ctx, lease)
}

// byFanout drains with a processor that has this policy.
func byFanout(policy outbox.Policy) func(context.Context, *stage) error {
	return func(ctx context.Context, s *stage) (err error) {
		broker, err := redisstreams.Open(s.redis)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, broker.Close(context.WithoutCancel(ctx))) }()
		store := &tally{Store: s.table.Store, rows: s.rows, done: make(chan struct{})}
		processor, err := outbox.NewProcessor(outbox.ProcessorConfig{
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
			err = fmt.Errorf("scenario: %d of %d rows were settled in %s", store.settled.Load(), s.rows, drainPatience)
		}
		stop()
		return errors.Join(err, group.Wait())
	}
}
