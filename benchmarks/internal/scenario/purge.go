package scenario

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
	"github.com/gorm-fanout/fanout/cleanup"
	"github.com/gorm-fanout/fanout/outbox"
)

// purge asks what a purge costs a drain, and what a stuck row costs a purge. A backlog is drained
// without a purge, beside one that gives way, since the backlog is old, and beside one that does
// not. Without a backlog, published rows are purged alone and beside a row that no relay delivers.
type purge struct {
	dialect            outbox.Dialect
	published, backlog int
	payload, keys      int
}

func newPurge(s *Sizes) Scenario {
	p := &purge{}
	s.dialect(&p.dialect)
	s.number(&p.published, "published", 1_000_000, 12_000, "rows to purge")
	s.number(&p.backlog, "backlog", 500_000, 2000, "messages to drain, for longer than the purge takes")
	s.number(&p.payload, "payload", 500, 100, "bytes of payload")
	s.number(&p.keys, "keys", 1000, 10, "number of ordering keys")
	return p
}

const (
	purgeLimit      = 0.9 // of the rate without
	purgeClaimLimit = 2   // times the p99 without, by the slowest claim
	// stuckLimit leaves room for the one pause of five seconds that a stuck row may cost.
	stuckLimit = 0.5

	purgeAge      = 2 * cleanup.DefaultPublishedRetention
	backlogAge    = time.Hour        // above the lag that a purge tolerates
	neverGivesWay = 1000 * time.Hour // a lag to tolerate
)

// sweep is one way to purge in one run.
type sweep struct {
	name    string
	backlog int
	purges  bool
	maxLag  time.Duration
	target  string // of the limits

	began, purged, drained time.Time
	meter                  *meter
}

// Run implements Scenario.
func (p *purge) Run(ctx context.Context, o *Options) error {
	return o.eachRun("purge", func(run int) error {
		without := &sweep{name: "without a purge", backlog: p.backlog}
		alone := &sweep{name: "no drain", purges: true}
		stuck := &sweep{name: "no drain, a stuck row", backlog: 1, purges: true}
		sweeps := []*sweep{
			without,
			{name: "giving way", backlog: p.backlog, purges: true, target: "P10"},
			{name: "not giving way", backlog: p.backlog, purges: true, maxLag: neverGivesWay, target: "P10"},
			alone, stuck,
		}
		for _, i := range o.random(run).Perm(len(sweeps)) {
			if err := p.measure(ctx, o, sweeps[i]); err != nil {
				return fmt.Errorf("%s: %w", sweeps[i].name, err)
			}
		}
		s := o.Report.Scenario("purge")
		for _, w := range sweeps {
			p.report(s, w, without)
		}
		s.Add(stuck.name, "rate of the purge, of that alone", "x", alone.purged.Sub(alone.began).Seconds()/stuck.purged.Sub(stuck.began).Seconds()).LimitAtLeast(stuckLimit, "")
		return nil
	})
}

func (p *purge) measure(ctx context.Context, o *Options, w *sweep) error {
	fill := fixture.Fill{Events: p.published, Keys: p.keys, Payload: p.payload, Age: purgeAge, Published: purgeAge}
	on := setting{dialect: p.dialect, fills: []fixture.Fill{fill, {Events: w.backlog, Keys: p.keys, Payload: p.payload, Age: backlogAge}}}
	return o.withRig(ctx, on, func(ctx context.Context, r *rig) error {
		w.meter, w.began = r.meter, time.Now()
		purging := make(chan error, 1)
		go func() { purging <- p.purge(ctx, r.Table, w) }()
		var err error
		if w.backlog > 1 { // a stuck row has no relay
			err = r.deliver(ctx, func(ctx context.Context) error { return r.drained(ctx, w.backlog) })
			w.drained = time.Now()
			err = errors.Join(err, check(r.recorders[0].noted(), int64(p.published)+1, w.backlog, true))
		}
		return errors.Join(err, <-purging)
	})
}

// purge lets the scheduler run once.
func (p *purge) purge(ctx context.Context, table *fixture.Table, w *sweep) error {
	if !w.purges {
		return nil
	}
	scheduler, err := cleanup.New(cleanup.Config{
		Databases: map[string]cleanup.Table{"bench": table.Store}, Log: slog.New(slog.DiscardHandler), MaxLag: w.maxLag,
	})
	if err != nil {
		return err
	}
	reports, err := scheduler.Purge(ctx)
	w.purged = time.Now()
	if err == nil && reports[0].Published != p.published {
		err = fmt.Errorf("scenario: %d rows were purged, want %d", reports[0].Published, p.published)
	}
	return err
}

func (p *purge) report(s *report.Scenario, w, without *sweep) {
	if w.purges {
		took := w.purged.Sub(w.began).Seconds()
		s.Add(w.name, "whole purge", "s", took)
		s.Add(w.name, "rate of the purge", "rows/s", float64(p.published)/took)
	}
	if w.backlog <= 1 {
		return
	}
	end := w.drained
	if w.purges && w.purged.Before(end) {
		end = w.purged // until then both went on
	}
	times, rows := w.meter.between(w.began, end)
	rate := float64(rows) / end.Sub(w.began).Seconds()
	s.Add(w.name, "drain", "msgs/s", rate)
	s.AddTimes(w.name, "claim, ", times)
	slowest := report.Percentile(times, 1)
	if w.purges {
		calm, rows := without.meter.between(without.began, without.drained)
		s.Add(w.name, "drain, of the rate without", "x", rate*without.drained.Sub(without.began).Seconds()/float64(rows)).LimitAtLeast(purgeLimit, w.target)
		s.Add(w.name, "slowest claim, times the p99 without", "x", float64(slowest)/float64(report.Percentile(calm, 0.99))).LimitAtMost(purgeClaimLimit, w.target)
	}
}
