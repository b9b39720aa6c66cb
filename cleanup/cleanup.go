// Package cleanup removes finished rows on a schedule: published and abandoned ones on separate
// retention windows, in bounded batches, from one process at a time.
package cleanup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/gorm-fanout/fanout/internal/purge"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// Defaults of the schedule.
const (
	DefaultInterval           = time.Hour
	DefaultPublishedRetention = 7 * 24 * time.Hour
	DefaultAbandonedRetention = 30 * 24 * time.Hour
	DefaultBatchSize          = 5000
	DefaultMaxLag             = 10 * time.Second
)

// Retention says how long finished rows stay, counted from the moment they were finished, by the
// database's clock. Zero takes what is configured around it.
type Retention struct {
	Published time.Duration
	Abandoned time.Duration
}

// A Table is what a purge needs of one database. Every store is one.
type Table interface {
	// FinishedBrokers, Purge, Exclusive and Backlog are those of admin.Administration.
	FinishedBrokers(ctx context.Context) ([]string, error)
	Purge(ctx context.Context, request admin.PurgeRequest) (int, error)
	Exclusive(ctx context.Context, name string, f func(context.Context) error) (ran bool, err error)
	Backlog(ctx context.Context) ([]admin.Backlog, error)
}

// Config of a scheduler. Zero values take the defaults.
type Config struct {
	// Databases to clean, by name.
	Databases map[string]Table
	// Interval between two runs. Default 1 h. The first run follows a minute after the start, or an
	// interval if that is shorter.
	Interval time.Duration
	// Retention of all brokers. Default: published 168 h, abandoned 720 h.
	Retention Retention
	// Brokers overrides the retention of single brokers.
	Brokers map[string]Retention
	// BatchSize is the most rows that one statement removes. Default 5,000, at which a batch takes
	// some milliseconds.
	BatchSize int
	// MaxLag is the lag of the delivery to a broker (see admin.Backlog) above which a run slows down
	// to one batch every five seconds, as long as that delivery comes forward. What no relay delivers,
	// since the broker is out, no relay has it or a row is stuck, slows down one batch. Default 10 s.
	MaxLag time.Duration
	// Log gets one line per run and database. Default: slog.Default().
	Log *slog.Logger
	// OnReport is called with what a run removed from each database, also if the run failed. It
	// should return at once. Default: none.
	OnReport func(ctx context.Context, report Report)
}

// Scheduler purges on a schedule. It is safe for concurrent use.
type Scheduler struct {
	cfg  Config
	pace pace
}

// New checks the configuration; all problems are reported in one error.
func New(cfg Config) (*Scheduler, error) {
	var problems []error
	check := func(what string, d time.Duration) {
		if d < 0 {
			problems = append(problems, fmt.Errorf("cleanup: %s is %s: use a positive duration", what, d))
		}
	}
	check("interval", cfg.Interval)
	check("published_retention", cfg.Retention.Published)
	check("abandoned_retention", cfg.Retention.Abandoned)
	check("max_lag", cfg.MaxLag)
	for _, name := range slices.Sorted(maps.Keys(cfg.Brokers)) {
		check(fmt.Sprintf("broker %q: retention.published", name), cfg.Brokers[name].Published)
		check(fmt.Sprintf("broker %q: retention.abandoned", name), cfg.Brokers[name].Abandoned)
	}
	if cfg.BatchSize < 0 {
		problems = append(problems, fmt.Errorf("cleanup: batch_size is %d: use a positive number", cfg.BatchSize))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	cfg.Interval = cmp.Or(cfg.Interval, DefaultInterval)
	cfg.Retention.Published = cmp.Or(cfg.Retention.Published, DefaultPublishedRetention)
	cfg.Retention.Abandoned = cmp.Or(cfg.Retention.Abandoned, DefaultAbandonedRetention)
	cfg.BatchSize = cmp.Or(cfg.BatchSize, DefaultBatchSize)
	cfg.MaxLag = cmp.Or(cfg.MaxLag, DefaultMaxLag)
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	return &Scheduler{cfg: cfg, pace: pace{maxLag: cfg.MaxLag}}, nil
}

// Run purges until ctx ends, and then returns nil. Errors are logged; the next run tries again.
func (s *Scheduler) Run(ctx context.Context) error {
	purge.Every(ctx, purge.FirstAfter(s.cfg.Interval), s.cfg.Interval, func(ctx context.Context) {
		_, _ = s.Purge(ctx) // each error is logged where it happens
	})
	return nil
}

// Report is what one run removed from one database.
type Report struct {
	Database             string
	Published, Abandoned int
	// Skipped is true when another process was cleaning this database.
	Skipped bool
}

// Purge runs once over all databases. An error in one of them does not keep it from the others.
func (s *Scheduler) Purge(ctx context.Context) ([]Report, error) {
	var (
		reports  []Report
		problems []error
	)
	for _, name := range slices.Sorted(maps.Keys(s.cfg.Databases)) {
		started := time.Now()
		report, err := s.purge(ctx, name)
		if err != nil {
			if ctx.Err() == nil {
				s.cfg.Log.ErrorContext(ctx, "purge failed", "database", name, "error", err)
			}
			problems = append(problems, fmt.Errorf("cleanup: database %q: %w", name, err))
		} else if !report.Skipped {
			s.cfg.Log.InfoContext(ctx, "purged", "database", name, "published", report.Published, "abandoned", report.Abandoned,
				"took", time.Since(started).Round(time.Microsecond).String())
		}
		if s.cfg.OnReport != nil {
			s.cfg.OnReport(ctx, report)
		}
		reports = append(reports, report)
	}
	return reports, errors.Join(problems...)
}

func (s *Scheduler) purge(ctx context.Context, database string) (Report, error) {
	report := Report{Database: database}
	purger := s.cfg.Databases[database]
	ran, err := purger.Exclusive(ctx, "cleanup", func(ctx context.Context) error {
		// The table names the brokers, not the configuration: rows of a broker that was removed must go, too.
		brokers, err := purger.FinishedBrokers(ctx)
		if err != nil {
			return err
		}
		for _, broker := range brokers {
			retention := s.retention(broker)
			if err := s.drain(ctx, database, &report.Published, admin.PurgeRequest{Broker: broker, Status: outbox.StatusPublished, Retention: retention.Published}); err != nil {
				return err
			}
			if err := s.drain(ctx, database, &report.Abandoned, admin.PurgeRequest{Broker: broker, Status: outbox.StatusAbandoned, Retention: retention.Abandoned}); err != nil {
				return err
			}
		}
		return nil
	})
	report.Skipped = err == nil && !ran
	return report, err
}

// drain removes batch after batch until one comes back short, and slows down while delivery lags.
func (s *Scheduler) drain(ctx context.Context, database string, total *int, request admin.PurgeRequest) error {
	purger := s.cfg.Databases[database]
	request.Limit = s.cfg.BatchSize
	return purge.Batches(total, request.Limit,
		func() (int, error) { return purger.Purge(ctx, request) },
		func() error { return s.pace.giveWay(ctx, database, purger) })
}

// retention of one broker, with what it does not override.
func (s *Scheduler) retention(broker string) Retention {
	own, all := s.cfg.Brokers[broker], s.cfg.Retention
	return Retention{cmp.Or(own.Published, all.Published), cmp.Or(own.Abandoned, all.Abandoned)}
}
