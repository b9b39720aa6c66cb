package scenario

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/cleanup"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
	"github.com/gorm-fanout/fanout/outbox/postgres"
)

// Purge asks what it costs a drain that published rows are purged meanwhile, by the scheduler as it
// is by default. A backlog is drained three times, in turn: without a purge, with one that does not
// give way, which is the worst that can happen, and with one that does, since the backlog is old.
type Purge struct {
	// Published rows to purge, and Backlog to drain, which is to last longer than the purge.
	Published, Backlog int64
	// Payload of each row, in bytes, and how many ordering keys there are.
	Payload int
	Keys    int64
}

// DefaultPurge are the sizes of a full run.
func DefaultPurge() Purge {
	return Purge{Published: 1_000_000, Backlog: 500_000, Payload: 500, Keys: 1000}
}

// ShortPurge are sizes that only show whether the harness works.
func ShortPurge() Purge { return Purge{Published: 12_000, Backlog: 2000, Payload: 100, Keys: 10} }

// P10.
const (
	purgeTarget      = 0.9 // of the rate without
	purgeClaimTarget = 2   // times the p99 without, by the slowest claim
)

const (
	// purgeAge is how long ago rows were published: longer than the default retention.
	purgeAge = 8 * 24 * time.Hour
	// backlogAge is how old the backlog is: older than the lag that a purge tolerates by default.
	backlogAge = time.Hour
	// neverLag is the lag of a purge that does not give way.
	neverLag = 1000 * time.Hour
)

// UsesRedis implements RedisUser.
func (Purge) UsesRedis() {}

// Check implements Scenario.
func (p Purge) Check(int) error {
	if p.Published < 2*cleanup.DefaultBatchSize || p.Backlog < 1 || p.Payload < 0 || p.Keys < 1 {
		return fmt.Errorf("%d published rows, a backlog of %d, %d keys: use at least %d, 1 and 1, and a payload of at least 0 bytes",
			p.Published, p.Backlog, p.Keys, 2*cleanup.DefaultBatchSize)
	}
	return nil
}

// The ways to purge beside a drain.
const (
	purgeNot = iota
	purgeForced
	purgePolite
	purgeWays
)

// Run implements Scenario.
func (p Purge) Run(ctx context.Context, o *Options) error {
	return o.withDatabase(ctx, "purge", func(database *fixture.Database) error {
		return o.withStreams(ctx, func(streams *fixture.Streams) error {
			for run := range o.Runs {
				var sweeps [purgeWays]*sweep
				for _, way := range o.turns(run).Perm(purgeWays) {
					sweeps[way] = &sweep{Purge: p, way: way, options: o, database: database, streams: streams}
					if err := sweeps[way].run(ctx, fmt.Sprintf("outbox_%d_%d", run, way)); err != nil {
						return err
					}
				}
				if err := p.report(o, sweeps[purgeNot], sweeps[purgeForced], sweeps[purgePolite]); err != nil {
					return err
				}
				o.logf("purge: run %d of %d: done", run+1, o.Runs)
			}
			return nil
		})
	})
}

// sweep is one way in one run.
type sweep struct {
	Purge

	way      int
	options  *Options
	database *fixture.Database
	streams  *fixture.Streams
	watch    *stopwatch
	began    time.Time
	drained  time.Time
	purger   *timedPurger
}

// timedPurger is a store that notes when each batch of a purge was removed.
type timedPurger struct {
	*postgres.Store

	mu    sync.Mutex
	laps  []lap
	ended time.Time // of the whole purge
}

// Purge implements cleanup.Table.
func (p *timedPurger) Purge(ctx context.Context, request admin.PurgeRequest) (int, error) {
	began := time.Now()
	n, err := p.Store.Purge(ctx, request)
	if n > 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.laps = append(p.laps, lap{at: began, took: time.Since(began), rows: n})
	}
	return n, err
}

// until counts the rows that were removed up to a moment.
func (p *timedPurger) until(moment time.Time) (rows int) {
	for _, lap := range p.laps {
		if !lap.at.Add(lap.took).After(moment) {
			rows += lap.rows
		}
	}
	return rows
}

func (s *sweep) run(ctx context.Context, name string) error {
	const connections = 6
	table, err := s.database.Table(ctx, name, connections)
	if err != nil {
		return err
	}
	prefix := streamPrefix(s.streams, name, []string{drainBroker})
	if err := s.fill(ctx, table, prefix); err != nil {
		return err
	}
	targets, closeAll, err := redisTargets(s.options.Redis, []string{drainBroker}, outbox.Policy{}, redisstreams.Settings{})
	if err != nil {
		return err
	}
	s.watch, s.purger = &stopwatch{Store: table.Store}, &timedPurger{Store: table.Store}
	s.began = time.Now()
	purging := make(chan error, 1)
	if s.way == purgeNot {
		purging <- nil
	} else {
		go func() { purging <- s.purge(ctx) }()
	}
	err = deliverAll(ctx, s.watch, s.Backlog, targets, nil)
	s.drained = time.Now()
	if err = errors.Join(err, <-purging, closeAll(ctx)); err != nil {
		return err
	}
	s.options.logf("purge: way %d: drained in %s", s.way, s.drained.Sub(s.began).Round(time.Millisecond))
	return s.check(ctx, table, prefix+drainBroker)
}

func (s *sweep) fill(ctx context.Context, table *fixture.Table, prefix string) error {
	if err := s.database.Checkpoint(ctx, s.options.Log); err != nil {
		return err
	}
	if err := table.Backdate(ctx, backlogAge); err != nil {
		return err
	}
	events := fixture.Events{Brokers: []string{drainBroker}, Stream: prefix, Keys: s.Keys, Payload: s.Payload, Seed: s.options.Seed}
	events.Count, events.Published = s.Published, purgeAge
	if err := table.FillEvents(ctx, s.options.Log, events); err != nil {
		return err
	}
	events.Count, events.Published = s.Backlog, 0
	if err := table.FillEvents(ctx, s.options.Log, events); err != nil {
		return err
	}
	if err := table.Vacuum(ctx); err != nil {
		return err
	}
	return s.database.Checkpoint(ctx, s.options.Log)
}

// purge lets the scheduler run once.
func (s *sweep) purge(ctx context.Context) error {
	config := cleanup.Config{Databases: map[string]cleanup.Table{"bench": s.purger}, Log: slog.New(slog.DiscardHandler)}
	if s.way == purgeForced {
		config.MaxLag = neverLag
	}
	scheduler, err := cleanup.New(config)
	if err != nil {
		return err
	}
	reports, err := scheduler.Purge(ctx)
	s.purger.ended = time.Now()
	if err == nil && int64(reports[0].Published) != s.Published {
		err = fmt.Errorf("scenario: %d rows were purged, want %d", reports[0].Published, s.Published)
	}
	return err
}

// check looks whether all messages have arrived in order, and nothing is in the table but their
// rows and what was not to be purged.
func (s *sweep) check(ctx context.Context, table *fixture.Table, stream string) error {
	rows := s.Backlog
	if s.way == purgeNot {
		rows += s.Published
		if err := allPublished(ctx, table, rows); err != nil {
			return err
		}
		if err := table.Exec(ctx, "DELETE FROM {{table}} WHERE published_at < now() - interval '7 days'"); err != nil {
			return err
		}
	} else if err := allPublished(ctx, table, rows); err != nil {
		return err
	}
	if err := inStream(ctx, s.streams, stream, table, drainBroker); err != nil {
		return err
	}
	if err := s.streams.Delete(ctx, stream); err != nil {
		return err
	}
	return table.Drop(ctx)
}

// claims returns the times of the claims that began by a moment, and the rate of the drain up to
// it.
func (s *sweep) claims(until time.Time) (times []time.Duration, rate float64) {
	rows := 0
	for _, lap := range s.watch.laps {
		if end := lap.at.Add(lap.took); !end.After(until) {
			times = append(times, lap.took)
			rows += lap.rows
		}
	}
	return times, float64(rows) / until.Sub(s.began).Seconds()
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func (p Purge) report(o *Options, without, forced, polite *sweep) error {
	s := o.Report.Scenario("purge")
	calm, rate := without.claims(without.drained)
	p99 := report.Percentile(calm, 0.99)
	s.Add("without", "drain", "msgs/s", rate)
	s.Add("without", "claim p50", "ms", report.Milliseconds(report.Percentile(calm, 0.5)))
	s.Add("without", "claim p99", "ms", report.Milliseconds(p99))
	s.Add("without", "slowest claim", "ms", report.Milliseconds(report.Percentile(calm, 1)))
	for i, sweep := range []*sweep{forced, polite} {
		name := []string{"forced", "giving way"}[i]
		end := earlier(sweep.purger.ended, sweep.drained) // both went on until then
		times, beside := sweep.claims(end)
		if len(times) == 0 {
			return fmt.Errorf("scenario: nothing was claimed while the purge went on (%s): use a larger one", name)
		}
		slowest := report.Percentile(times, 1)
		s.Add(name, "both went on for", "s", end.Sub(sweep.began).Seconds())
		s.Add(name, "drain", "msgs/s", beside)
		s.Add(name, "purged meanwhile", "rows/s", float64(sweep.purger.until(end))/end.Sub(sweep.began).Seconds())
		s.AddRatioAtLeast(name, "drain, of the rate without", beside/rate, purgeTarget)
		s.Add(name, "claim p50", "ms", report.Milliseconds(report.Percentile(times, 0.5)))
		s.Add(name, "claim p99", "ms", report.Milliseconds(report.Percentile(times, 0.99)))
		s.Add(name, "slowest claim", "ms", report.Milliseconds(slowest))
		s.AddRatio(name, "slowest claim, times the p99 without", float64(slowest)/float64(p99), purgeClaimTarget)
		batches := make([]time.Duration, 0, len(sweep.purger.laps))
		for _, lap := range sweep.purger.laps {
			batches = append(batches, lap.took)
		}
		s.Add(name, "batch of the purge, p50", "ms", report.Milliseconds(report.Percentile(batches, 0.5)))
		s.Add(name, "batch of the purge, p99", "ms", report.Milliseconds(report.Percentile(batches, 0.99)))
		s.Add(name, "whole purge", "s", sweep.purger.ended.Sub(sweep.began).Seconds())
	}
	return nil
}
