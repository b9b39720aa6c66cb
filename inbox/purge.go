package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/internal/purge"
)

// The defaults of a purge.
const (
	defaultPurgeInterval       = time.Hour
	defaultHandledRetention    = 7 * 24 * time.Hour
	defaultDeadLetterRetention = 30 * 24 * time.Hour
	defaultExpectedRetention   = 30 * 24 * time.Hour
	defaultPurgeBatch          = 2000
)

// PurgeConfig says how long rows stay, counted by the database's clock from when they got their
// status. Zero values take the defaults.
type PurgeConfig struct {
	// Handled is how long copies of a handled message are recognised, default 168 h. A copy that
	// comes later is handled again! It must so be longer than the longest time after which one may
	// come: the retention of the broker and of its dead letters, the longest outage of a relay or a
	// consumer, and how far back anybody would ever replay. Consumers with [WithTokens] have no
	// such rows, and no such limit.
	Handled time.Duration
	// DeadLetters is for dead letters, and for what has failed, or was redriven, and no one has
	// come back for. Default 720 h. Its payload goes with it: see to the dead letters before that.
	DeadLetters time.Duration
	// Expected is for tokens that were never used. Default 720 h. Their messages are duplicates
	// then; see [Expect].
	Expected time.Duration
	// Interval between two runs, default 1 h. The first one comes a minute after the start, or an
	// interval if that is shorter.
	Interval time.Duration
	// BatchSize is the most rows that one statement removes. Default 2,000, which is
	// below the number of locks at which SQL Server would take the whole table.
	BatchSize int
	// Log gets one line per run. Default: slog.Default().
	Log *slog.Logger
	// OnReport is called with what a run has removed, also where it failed on the way. It should
	// return at once. Default: it is not reported.
	OnReport func(ctx context.Context, report Purged)
}

// Purged is what one run has removed.
type Purged struct {
	Handled, Failed, DeadLetters, Redriven, Expected int64
}

// Total is the number of rows.
func (p Purged) Total() int64 { return p.Handled + p.Failed + p.DeadLetters + p.Redriven + p.Expected }

// A Purger removes old rows from an inbox table. One for each database is enough; several, in as
// many processes, do not disturb each other: what one is at is passed over by the others. It is
// safe for concurrent use.
type Purger struct {
	cfg   PurgeConfig
	table string
	sql   *statements
	db    *gorm.DB
}

// NewPurger checks the configuration; all problems are reported in one error. Of the options it
// uses [WithTable].
func NewPurger(db *gorm.DB, cfg PurgeConfig, opts ...Option) (*Purger, error) {
	s, statements, err := prepare(db, opts)
	problems := []error{err}
	for _, setting := range []struct {
		name     string
		value    *time.Duration
		fallback time.Duration
	}{
		{"Handled", &cfg.Handled, defaultHandledRetention},
		{"DeadLetters", &cfg.DeadLetters, defaultDeadLetterRetention},
		{"Expected", &cfg.Expected, defaultExpectedRetention},
		{"Interval", &cfg.Interval, defaultPurgeInterval},
	} {
		if *setting.value < 0 {
			problems = append(problems, fmt.Errorf("inbox: purge: %s is %s: use a positive duration", setting.name, *setting.value))
		}
		if *setting.value == 0 {
			*setting.value = setting.fallback
		}
	}
	if cfg.BatchSize < 0 {
		problems = append(problems, fmt.Errorf("inbox: purge: BatchSize is %d: use a positive number", cfg.BatchSize))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	if cfg.BatchSize == 0 {
		cfg.BatchSize = defaultPurgeBatch
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Purger{cfg: cfg, table: s.table, sql: statements, db: db}, nil
}

// Run purges until ctx ends, and then returns nil. Errors are logged; the next run tries again.
func (p *Purger) Run(ctx context.Context) error {
	purge.Every(ctx, purge.FirstAfter(p.cfg.Interval), p.cfg.Interval, func(ctx context.Context) {
		_, _ = p.Purge(ctx) // its error is logged where it happens
	})
	return nil
}

// Purge runs once. What it has removed before an error stays removed, and is reported.
func (p *Purger) Purge(ctx context.Context) (Purged, error) {
	started := time.Now()
	var report Purged
	err := p.purge(ctx, &report)
	switch {
	case err == nil:
		p.cfg.Log.InfoContext(ctx, "inbox purged", "table", p.table, "handled", report.Handled, "failed", report.Failed, "dead_letters", report.DeadLetters,
			"redriven", report.Redriven, "expected", report.Expected, "took", time.Since(started).Round(time.Microsecond).String())
	case ctx.Err() == nil:
		p.cfg.Log.ErrorContext(ctx, "inbox purge failed", "table", p.table, "error", err)
	}
	if p.cfg.OnReport != nil {
		p.cfg.OnReport(ctx, report)
	}
	return report, err
}

func (p *Purger) purge(ctx context.Context, report *Purged) error {
	for _, rows := range []struct {
		status    string
		retention time.Duration
		removed   *int64
	}{
		{statusHandled, p.cfg.Handled, &report.Handled},
		{statusFailed, p.cfg.DeadLetters, &report.Failed},
		{statusDeadLetter, p.cfg.DeadLetters, &report.DeadLetters},
		{statusRedriven, p.cfg.DeadLetters, &report.Redriven},
		{statusExpected, p.cfg.Expected, &report.Expected},
	} {
		err := purge.Batches(rows.removed, int64(p.cfg.BatchSize), func() (int64, error) {
			return p.remove(ctx, rows.status, rows.retention)
		}, nil)
		if err != nil {
			return fmt.Errorf("inbox: purge %s rows of %s: %w", rows.status, p.table, explain(err))
		}
	}
	return nil
}

// remove removes one batch of rows of a status.
func (p *Purger) remove(ctx context.Context, status string, retention time.Duration) (int64, error) {
	if lock, ok := p.sql.lockOld[status]; ok {
		return p.sql.purge[status].after(ctx, p.db, lock, retention.Microseconds(), p.cfg.BatchSize)
	}
	return exec(ctx, outside(p.db), p.sql.purge[status], retention.Microseconds(), p.cfg.BatchSize)
}
