package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/outbox"
)

// Fanout asks what further brokers cost: the commit of a GORM transaction that writes a row for
// each of them, and the drain of events to all of them. The brokers are clients of one Redis
// server, each with a stream and a processor of its own.
type Fanout struct {
	// Brokers are the numbers of brokers to measure with.
	Brokers []int
	// Workers for each broker. Default: what the library has.
	Workers int
	// Events to drain in each run, to every broker.
	Events int64
	// Commits in each run, by so many Writers at a time, cut into Parts between which the cases
	// take turns.
	Commits, Writers, Parts int
	// Payload of each event, in bytes, and how many ordering keys they have.
	Payload int
	Keys    int64
}

// DefaultFanout are the sizes of a full run.
func DefaultFanout() Fanout {
	return Fanout{Brokers: []int{1, 2, 4, 8}, Events: 50_000, Commits: 8000, Writers: 4, Parts: 4, Payload: 500, Keys: 1000}
}

// ShortFanout are sizes that only show whether the harness works.
func ShortFanout() Fanout {
	return Fanout{Brokers: []int{1, 3}, Events: 300, Commits: 20, Writers: 2, Parts: 2, Payload: 100, Keys: 10}
}

// UsesRedis implements RedisUser.
func (Fanout) UsesRedis() {}

// Check implements Scenario.
func (f Fanout) Check(int) error {
	if len(f.Brokers) == 0 || slices.Min(f.Brokers) < 1 || f.Events < 1 || f.Parts < 1 || f.Writers < 1 || f.Commits < f.Parts*f.Writers || f.Payload < 0 || f.Keys < 1 {
		return fmt.Errorf("brokers %v, %d events, %d commits by %d writers in %d parts, %d keys: use at least 1 of each, a commit for each writer in "+
			"each part, and a payload of at least 0 bytes",
			f.Brokers, f.Events, f.Commits, f.Writers, f.Parts, f.Keys)
	}
	return nil
}

// brokerNames are the names of so many brokers.
func brokerNames(n int) []string {
	names := make([]string, n)
	names[0] = outbox.DefaultInternalBroker
	for i := 1; i < n; i++ {
		names[i] = "partner-" + strconv.Itoa(i)
	}
	return names
}

func caseOf(brokers int) string {
	if brokers == 1 {
		return "1 broker"
	}
	return strconv.Itoa(brokers) + " brokers"
}

// Run implements Scenario.
func (f Fanout) Run(ctx context.Context, o *Options) error {
	return o.withDatabase(ctx, "fanout", func(database *fixture.Database) error {
		return o.withStreams(ctx, func(streams *fixture.Streams) error {
			for run := range o.Runs {
				if err := f.commits(ctx, o, database, run); err != nil {
					return err
				}
				if err := f.drains(ctx, o, database, streams, run); err != nil {
					return err
				}
				o.logf("fanout: run %d of %d: done", run+1, o.Runs)
			}
			return nil
		})
	})
}

// drains measures one run of all numbers of brokers.
func (f Fanout) drains(ctx context.Context, o *Options, database *fixture.Database, streams *fixture.Streams, run int) error {
	costs := make([]cost, len(f.Brokers))
	for _, i := range o.turns(run).Perm(len(f.Brokers)) {
		var err error
		if costs[i], err = f.drain(ctx, o, database, streams, f.Brokers[i], fmt.Sprintf("drain_%d_%d", run, i)); err != nil {
			return fmt.Errorf("%d brokers: %w", f.Brokers[i], err)
		}
	}
	s := o.Report.Scenario("fanout")
	for i, brokers := range f.Brokers {
		of, deliveries := "drain, "+caseOf(brokers), f.Events*int64(brokers)
		rate := func(i int) float64 { return float64(f.Events*int64(f.Brokers[i])) / costs[i].took.Seconds() }
		s.Add(of, "deliveries", "/s", rate(i))
		s.Add(of, "events", "/s", rate(i)/float64(brokers))
		costs[i].report(s, of, "delivery", deliveries)
		s.Add(of, "deliveries, times "+caseOf(f.Brokers[0]), "x", rate(i)/rate(0))
	}
	return nil
}

// drain measures one number of brokers.
func (f Fanout) drain(ctx context.Context, o *Options, database *fixture.Database, streams *fixture.Streams, brokers int, name string) (c cost, err error) {
	const connections = outbox.Shards + 1                               // for each broker: its workers and the poll
	table, err := database.Table(ctx, name, int32(connections*brokers)) //nolint:gosec // a few
	if err != nil {
		return c, err
	}
	names := brokerNames(brokers)
	prefix := streamPrefix(streams, name, names)
	if err := database.Checkpoint(ctx, o.Log); err != nil {
		return c, err
	}
	if err := table.FillEvents(ctx, o.Log, fixture.Events{Count: f.Events, Brokers: names, Stream: prefix, Keys: f.Keys, Payload: f.Payload, Seed: o.Seed}); err != nil {
		return c, err
	}
	if err := table.Vacuum(ctx); err != nil {
		return c, err
	}
	targets, closeAll, err := redisTargets(o.Redis, names, outbox.Policy{Workers: f.Workers}, redisstreams.Settings{})
	if err != nil {
		return c, err
	}
	c, err = spend(ctx, database, func() error { return deliverAll(ctx, table.Store, f.Events*int64(brokers), targets, nil) })
	if err = errors.Join(err, closeAll(ctx)); err != nil {
		return c, err
	}
	o.logf("fanout: drain, %s: %.0f deliveries/s", caseOf(brokers), float64(f.Events*int64(brokers))/c.took.Seconds())
	if err := allPublished(ctx, table, f.Events*int64(brokers)); err != nil {
		return c, err
	}
	for _, broker := range names {
		if err := inStream(ctx, streams, prefix+broker, table, broker); err != nil {
			return c, err
		}
		if err := streams.Delete(ctx, prefix+broker); err != nil {
			return c, err
		}
	}
	return c, table.Drop(ctx)
}
