package scenario

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// drainLite drains with a processor as it is by default.
func drainLite(unordered bool) func(context.Context, *liteSetup) error {
	return func(ctx context.Context, s *liteSetup) (err error) {
		var broker brokers.Broker = recorder{setup: s}
		if s.redis {
			if broker, err = redisstreams.Open(redisstreams.Settings{URL: adapter.Secret(s.options.Redis)}); err != nil {
				return err
			}
		}
		defer func() { err = errors.Join(err, broker.Close(context.WithoutCancel(ctx))) }()
		store := &tally{Store: s.lite.Store, rows: s.rows, done: make(chan struct{})}
		processor, err := relay.NewProcessor(relay.ProcessorConfig{
			Database: "bench", Broker: drainBroker, Store: store, Target: broker, Log: slog.New(slog.DiscardHandler),
			Policy: outbox.Policy{BatchSize: s.Batch, Unordered: unordered},
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
		case <-ctx.Done():
			err = ctx.Err()
		case <-patience.C:
			err = fmt.Errorf("scenario: %d of %d rows were completed in %s", store.completed.Load(), s.rows, drainPatience)
		}
		stop()
		return errors.Join(err, group.Wait())
	}
}

// check looks whether each row is published and its message has arrived exactly once and, where
// that was asked for, in the order of its key.
func (s *liteSetup) check(ctx context.Context) error {
	published, err := s.lite.Published(ctx)
	if err != nil {
		return err
	}
	if published != s.rows {
		return fmt.Errorf("scenario: %d of %d rows are published", published, s.rows)
	}
	keys, err := s.lite.Keys(ctx)
	if err != nil {
		return err
	}
	a := arrivals{setup: &setup{contest: &contest{ordered: s.ordered}}, keys: keys, seen: make(map[uuid.UUID]bool, len(keys)), last: map[string]int64{}}
	if s.redis {
		err = s.streams.Each(ctx, s.stream, "id", a.add)
	}
	for _, id := range s.arrived {
		if err == nil {
			err = a.add(id)
		}
	}
	if err == nil && int64(len(a.seen)) != s.rows {
		err = fmt.Errorf("scenario: %d of %d messages have arrived", len(a.seen), s.rows)
	}
	return err
}
