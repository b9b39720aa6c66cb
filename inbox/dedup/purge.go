package dedup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gorm-fanout/fanout/internal/purge"
)

// The defaults of a PurgeConfig.
const (
	DefaultRetention      = 7 * 24 * time.Hour  // of a Store
	defaultTokenRetention = 30 * 24 * time.Hour // of Tokens
	defaultPurgeInterval  = 10 * time.Minute
	defaultPurgeBatch     = 1000
)

// PurgeConfig says what a [PurgeLoop] forgets, and when. Zero fields have the defaults.
type PurgeConfig struct {
	// Retention is the age at which entries go, default 168 h, and 720 h for tokens. Of a [Store]
	// it must be longer than a copy of a message can be in progress: the retention of the broker, its
	// dead letters that an operator sends again, an outbox that replays. Of [Tokens] it must be
	// longer than a message can be in progress before it is processed, however late that is: a
	// message whose token is gone is never processed. Many times as much as for a Store costs
	// nothing there, as only tokens that were never used up are left to remove.
	Retention time.Duration
	// Interval between two runs, default 10 min.
	Interval time.Duration
	// BatchSize bounds one statement, default 1000.
	BatchSize int
	// Now is the clock, default time.Now. It should be near those of the processors: ages are told
	// by both.
	Now func() time.Time
	// Done is notified of each run: how many entries it has removed, and what it met. Default: nothing.
	Done func(ctx context.Context, removed int64, err error)
}

// A PurgeLoop removes old entries. Several of them, in several processes, do not get in each
// other's way.
type PurgeLoop struct {
	purger Purger
	PurgeConfig
}

// NewPurgeLoop returns a loop. The error says what is wrong with the configuration.
func NewPurgeLoop(purger Purger, config PurgeConfig) (*PurgeLoop, error) {
	if purger == nil {
		return nil, errors.New("dedup: purge: the store is missing")
	}
	if config.Retention < 0 || config.Interval < 0 || config.BatchSize < 0 {
		return nil, fmt.Errorf("dedup: purge: Retention %s, Interval %s, BatchSize %d: give positive ones, or 0 for the default",
			config.Retention, config.Interval, config.BatchSize)
	}
	if config.Retention == 0 {
		config.Retention = DefaultRetention
		if _, ok := purger.(Tokens); ok { // to lose one is to lose its message
			config.Retention = defaultTokenRetention
		}
	}
	if config.Interval == 0 {
		config.Interval = defaultPurgeInterval
	}
	if config.BatchSize == 0 {
		config.BatchSize = defaultPurgeBatch
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Done == nil {
		config.Done = func(context.Context, int64, error) {}
	}
	return &PurgeLoop{purger: purger, PurgeConfig: config}, nil
}

// Run purges now and then until ctx ends; then it returns nil. An error of a run goes to Done, and
// the next run tries again.
func (l *PurgeLoop) Run(ctx context.Context) error {
	purge.Every(ctx, 0, l.Interval, func(ctx context.Context) {
		removed, err := l.Once(ctx)
		if ctx.Err() == nil {
			l.Done(ctx, removed, err)
		}
	})
	return nil
}

// Once removes everything that is old, batch by batch, and returns how much that was.
func (l *PurgeLoop) Once(ctx context.Context) (removed int64, err error) {
	before := l.Now().Add(-l.Retention)
	err = purge.Batches(&removed, int64(l.BatchSize), func() (int64, error) { return l.purger.PurgeOlderThan(ctx, before, l.BatchSize) }, nil)
	if err != nil {
		return removed, fmt.Errorf("dedup: purge: %w", err)
	}
	return removed, nil
}
