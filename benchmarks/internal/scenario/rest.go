package scenario

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// Rest asks what an engine costs that has nothing to do: the statements that it sends to the
// database, and what it takes of the processor and the memory.
type Rest struct {
	// Brokers are the numbers of brokers to measure with.
	Brokers []int
	// PollMax is the longest time between two looks.
	PollMax time.Duration
	// For is how long is measured, once looks have become as rare as they will.
	For time.Duration
}

// DefaultRest are the sizes of a full run.
func DefaultRest() Rest {
	return Rest{Brokers: []int{1, 8}, PollMax: 10 * time.Second, For: 100 * time.Second}
}

// ShortRest are sizes that only show whether the harness works.
func ShortRest() Rest {
	return Rest{Brokers: []int{1, 3}, PollMax: 50 * time.Millisecond, For: 200 * time.Millisecond}
}

// restTarget is P11: statements per second and broker.
const restTarget = 0.2

// UsesRedis implements RedisUser.
func (Rest) UsesRedis() {}

// Check implements Scenario.
func (r Rest) Check(int) error {
	if len(r.Brokers) == 0 || slices.Min(r.Brokers) < 1 || r.PollMax < 20*time.Millisecond || r.For < 2*r.PollMax {
		return fmt.Errorf("brokers %v, looks every %s, for %s: use at least 1 broker, 20ms, and the time of two looks", r.Brokers, r.PollMax, r.For)
	}
	return nil
}

// Run implements Scenario.
func (r Rest) Run(ctx context.Context, o *Options) error {
	return o.withDatabase(ctx, "idle", func(database *fixture.Database) error {
		return o.withStreams(ctx, func(*fixture.Streams) error {
			for run := range o.Runs {
				for _, brokers := range r.Brokers {
					if err := r.measure(ctx, o, database, brokers, fmt.Sprintf("outbox_%d_%d", run, brokers)); err != nil {
						return err
					}
					o.logf("idle: run %d of %d, %s: done", run+1, o.Runs, caseOf(brokers))
				}
			}
			return nil
		})
	})
}

func (r Rest) measure(ctx context.Context, o *Options, database *fixture.Database, brokers int, name string) error {
	const connections = 4
	var wire fixture.Wire
	table, err := database.Table(ctx, name, connections, wire.Count)
	if err != nil {
		return err
	}
	targets, closeAll, err := redisTargets(o.Redis, brokerNames(brokers), outbox.Policy{PollMax: r.PollMax}, redisstreams.Settings{})
	if err != nil {
		return err
	}
	engine, err := relay.NewEngine(relay.EngineConfig{
		Stores: map[string]driver.Delivery{"bench": table.Store}, Brokers: targets, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	var group errgroup.Group
	group.Go(func() error { return engine.Run(running) })
	err = r.rest(ctx, o.Report.Scenario("idle"), database, &wire, brokers)
	stop()
	return errors.Join(err, group.Wait(), closeAll(ctx), table.Drop(ctx))
}

// rest measures while an engine runs.
func (r Rest) rest(ctx context.Context, s *report.Scenario, database *fixture.Database, wire *fixture.Wire, brokers int) error {
	if err := pause(ctx, 3*r.PollMax); err != nil { // the time between looks doubles up to the longest
		return err
	}
	allBefore, pingsBefore := wire.Statements()
	taken, err := spend(ctx, database, func() error { return pause(ctx, r.For) })
	all, pings := wire.Statements()
	peak := fixture.Watch().Stop() // now, since looking takes time of the processor
	if err != nil {
		return err
	}
	all, pings = all-allBefore, pings-pingsBefore
	if looks := int64(brokers) * int64(r.For/r.PollMax-1); all < looks {
		return fmt.Errorf("scenario: %d statements were counted for %d looks", all, looks)
	}
	of, seconds := caseOf(brokers), taken.took.Seconds()
	s.AddAtMost(of, "statements of each broker", "/s", float64(all)/seconds/float64(brokers), restTarget)
	s.Add(of, "statements", "/s", float64(all)/seconds)
	s.Add(of, "of which pings", "/s", float64(pings)/seconds)
	s.Add(of, "CPU of the process", "ms/s", report.Milliseconds(taken.cpu)/seconds)
	s.Add(of, "CPU of the database", "ms/s", report.Milliseconds(taken.server)/seconds)
	s.Add(of, "log", "B/s", float64(taken.wal)/seconds)
	reportPeak(s, of, peak)
	return nil
}

// pause waits.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
