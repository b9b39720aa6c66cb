package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// Memory asks whether the memory of the process follows the size of the backlog: it drains a small
// one and a large one, and then has a producer outrun the drain, so that the backlog grows.
type Memory struct {
	// Small and Large are the rows of the two backlogs.
	Small, Large int64
	// Produce rows per second for a time, of which the process may deliver Deliver per second.
	Produce, Deliver int
	For              time.Duration
	// Payload of each row, in bytes, and how many ordering keys there are.
	Payload int
	Keys    int64
}

// DefaultMemory are the sizes of a full run.
func DefaultMemory() Memory {
	return Memory{Small: 100_000, Large: 1_000_000, Produce: 20_000, Deliver: 5000, For: 20 * time.Second, Payload: 500, Keys: 1000}
}

// ShortMemory are sizes that only show whether the harness works.
func ShortMemory() Memory {
	return Memory{Small: 200, Large: 1000, Produce: 4000, Deliver: 500, For: 300 * time.Millisecond, Payload: 100, Keys: 10}
}

// memoryStream is how many entries the stream keeps, so that Redis need not hold a million.
const memoryStream = 10_000

// UsesRedis implements RedisUser.
func (Memory) UsesRedis() {}

// Check implements Scenario.
func (m Memory) Check(int) error {
	if m.Small < 1 || m.Large <= m.Small || m.Deliver < 1 || m.Produce < 2*m.Deliver || m.For < 3*idleTick || m.Payload < 0 || m.Keys < 1 {
		return fmt.Errorf("backlogs of %d and %d rows, %d rows per second of which %d are delivered for %s, %d keys: the second is to be larger, "+
			"at most half may be delivered, for %s at least, with 1 key or more and a payload of at least 0 bytes",
			m.Small, m.Large, m.Produce, m.Deliver, m.For, m.Keys, 3*idleTick)
	}
	return nil
}

// Run implements Scenario.
func (m Memory) Run(ctx context.Context, o *Options) error {
	return o.withDatabase(ctx, "memory", func(database *fixture.Database) error {
		return o.withStreams(ctx, func(streams *fixture.Streams) error {
			for run := range o.Runs {
				t := &tide{Memory: m, options: o, database: database, streams: streams, run: run}
				if err := t.compare(ctx); err != nil {
					return err
				}
				o.logf("memory: run %d of %d: done", run+1, o.Runs)
			}
			return nil
		})
	})
}

// tide is one run.
type tide struct {
	Memory

	options  *Options
	database *fixture.Database
	streams  *fixture.Streams
	run      int
}

func (t *tide) compare(ctx context.Context) error {
	small, err := t.drain(ctx, t.Small)
	if err != nil {
		return err
	}
	large, err := t.drain(ctx, t.Large)
	if err != nil {
		return err
	}
	grown, backlog, err := t.outrun(ctx)
	if err != nil {
		return err
	}
	s := t.options.Report.Scenario("memory")
	sizes := map[string]fixture.Peak{}
	names := []string{fmt.Sprintf("backlog of %d", t.Small), fmt.Sprintf("backlog of %d", t.Large), "producer outruns"}
	for i, peak := range []fixture.Peak{small, large, grown} {
		sizes[names[i]] = peak
		reportPeak(s, names[i], peak)
	}
	s.Add(names[2], "backlog at the end", "rows", float64(backlog))
	for _, name := range names[1:] {
		peak := sizes[name]
		s.AddRatio(name, "peak live heap, of the small backlog", float64(peak.Live)/float64(small.Live), memoryTarget)
		s.AddRatio(name, "peak heap, of the small backlog", float64(peak.Heap)/float64(small.Heap), memoryTarget)
		if small.Resident > 0 {
			s.AddRatio(name, "resident, of the small backlog", float64(peak.Resident)/float64(small.Resident), memoryTarget)
		}
	}
	return nil
}

// reportPeak notes what the process took of the memory.
func reportPeak(s *report.Scenario, of string, peak fixture.Peak) {
	s.Add(of, "peak heap", "MiB", float64(peak.Heap)/mebibyte)
	s.Add(of, "peak live heap", "MiB", float64(peak.Live)/mebibyte)
	if peak.Resident > 0 {
		s.Add(of, "peak resident", "MiB", float64(peak.Resident)/mebibyte)
	}
}

// drain watches the memory while a backlog is drained.
func (t *tide) drain(ctx context.Context, rows int64) (peak fixture.Peak, err error) {
	table, stream, err := t.open(ctx, fmt.Sprintf("outbox_%d_%d", t.run, rows))
	if err != nil {
		return peak, err
	}
	if err := t.fill(ctx, table, stream, rows); err != nil {
		return peak, err
	}
	if err := table.Vacuum(ctx); err != nil {
		return peak, err
	}
	if peak, err = t.watch(ctx, table, rows, outbox.Policy{}, nil); err != nil {
		return peak, err
	}
	if err := allPublished(ctx, table, rows); err != nil {
		return peak, err
	}
	return peak, t.close(ctx, table, stream, rows)
}

// outrun watches the memory while more is written than delivered, and says how large the backlog
// was in the end.
func (t *tide) outrun(ctx context.Context) (peak fixture.Peak, backlog int64, err error) {
	table, stream, err := t.open(ctx, fmt.Sprintf("outbox_%d_outrun", t.run))
	if err != nil {
		return peak, 0, err
	}
	total, delivered := int64(t.For.Seconds()*float64(t.Produce)), int64(0)
	peak, err = t.watch(ctx, table, 0, outbox.Policy{Rate: float64(t.Deliver)}, func(ctx context.Context, engine *relay.Engine) error {
		defer func() { delivered = engine.Stats()[0].Published }()
		return steadily(ctx, t.Produce, total, func(rows int64) error {
			err := t.fill(ctx, table, stream, rows)
			engine.Wake("bench")
			return err
		})
	})
	if err != nil {
		return peak, 0, err
	}
	if backlog = total - delivered; backlog < total/3 {
		return peak, 0, fmt.Errorf("scenario: the producer has not outrun the drain: of %d rows %d were delivered meanwhile", total, delivered)
	}
	published, err := table.Count(ctx, outbox.StatusPublished)
	if err != nil {
		return peak, 0, err
	}
	return peak, backlog, t.close(ctx, table, stream, published)
}

// steadily calls f at a steady pace with how many things are due, until all are.
func steadily(ctx context.Context, perSecond int, total int64, f func(due int64) error) error {
	began, ticker := time.Now(), time.NewTicker(idleTick)
	defer ticker.Stop()
	for done := int64(0); done < total; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		due := min(total, int64(time.Since(began).Seconds()*float64(perSecond))) // late ticks are made up for
		if due == done {
			continue
		}
		if err := f(due - done); err != nil {
			return err
		}
		done = due
	}
	return nil
}

func (t *tide) open(ctx context.Context, name string) (table *fixture.Table, stream string, err error) {
	const connections = 4
	table, err = t.database.Table(ctx, name, connections)
	return table, t.streams.New(name), err
}

func (t *tide) fill(ctx context.Context, table *fixture.Table, stream string, rows int64) error {
	return table.Fill(ctx, t.options.Log, fixture.Fill{
		Rows: rows, Brokers: []string{drainBroker}, Keys: []int64{t.Keys}, Prefix: "order-", Stream: stream, Payload: t.Payload, Seed: t.options.Seed,
	})
}

// watch delivers until so many rows are completed and beside is done, and watches the memory.
func (t *tide) watch(ctx context.Context, table *fixture.Table, rows int64, policy outbox.Policy, beside func(context.Context, *relay.Engine) error) (fixture.Peak, error) {
	targets, closeAll, err := redisTargets(t.options.Redis, []string{drainBroker}, policy, redisstreams.Settings{MaxLen: memoryStream})
	if err != nil {
		return fixture.Peak{}, err
	}
	gauge := fixture.Watch()
	err = deliverAll(ctx, table.Store, rows, targets, beside)
	return gauge.Stop(), errors.Join(err, closeAll(ctx))
}

// close looks whether so many messages were added to the stream, and removes it and the table.
func (t *tide) close(ctx context.Context, table *fixture.Table, stream string, rows int64) error {
	added, err := t.streams.Added(ctx, stream)
	if err != nil {
		return err
	}
	if added != rows {
		return fmt.Errorf("scenario: %d messages were added to the stream, want %d", added, rows)
	}
	if err := t.streams.Delete(ctx, stream); err != nil {
		return err
	}
	return table.Drop(ctx)
}
