package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/internal/failure"
)

// defaultRedeliverInterval is how often a [Redeliverer] polls for messages that were redriven.
const defaultRedeliverInterval = 10 * time.Second

// RedeliverConfig says how redriven messages are handed out. Zero values take the defaults.
type RedeliverConfig struct {
	// Interval between two polls, default 10 s. A poll that finds nothing is one statement.
	Interval time.Duration
	// Timeout bounds one attempt of the handler, default [DefaultTimeout].
	Timeout time.Duration
	// MaxAttempts is after how many failed attempts a message becomes a dead letter again, counted
	// from its redrive; default [DefaultMaxAttempts].
	MaxAttempts int
	// Observer is notified of each attempt; nil for none.
	Observer Observer
	// Log gets a line for each attempt that failed; and one when polls begin to fail, when the class
	// of the cause changes, and when they work again. Default: slog.Default().
	Log *slog.Logger
}

// A Redeliverer hands out what operators have redriven, by [Redrive], by "fanout inbox redrive" or
// by plain SQL, as long as it runs; see [Redeliver]. Run one in each service that consumes: several
// do not disturb each other where the handler uses [Handle].
type Redeliverer struct {
	db       *gorm.DB
	consumer string
	cfg      RedeliverConfig
	options  []Option
	handler  Handler
}

// NewRedeliverer checks what it is given; all problems are reported in one error. The options are
// those that the consumer's [Handle] has, and [WithDecoder] where the consumer has a decoder.
func NewRedeliverer(db *gorm.DB, consumer string, handler Handler, cfg RedeliverConfig, opts ...Option) (*Redeliverer, error) {
	_, _, err := prepare(db, opts)
	problems := []error{err, ValidateConsumer(consumer)}
	if handler == nil {
		problems = append(problems, errors.New("inbox: redeliver: the handler is nil"))
	} else {
		problems = append(problems, Validate(handler))
	}
	if cfg.Interval < 0 || cfg.Timeout < 0 {
		problems = append(problems, fmt.Errorf("inbox: redeliver: Interval is %s and Timeout is %s: use positive durations", cfg.Interval, cfg.Timeout))
	}
	if cfg.MaxAttempts < 0 {
		problems = append(problems, fmt.Errorf("inbox: redeliver: MaxAttempts is %d: give at least 1, or 0 for %d", cfg.MaxAttempts, DefaultMaxAttempts))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	if cfg.Interval == 0 {
		cfg.Interval = defaultRedeliverInterval
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	runner := &Runner{Handler: handler, Retry: Retry{MaxAttempts: cfg.MaxAttempts}, Timeout: cfg.Timeout, Observer: cfg.Observer, Log: cfg.Log}
	return &Redeliverer{db: db, consumer: consumer, cfg: cfg, options: opts, handler: HandlerFunc(func(ctx context.Context, m *Message) (Outcome, error) {
		a := runner.Attempt(ctx, m, Past{})
		return a.Outcome, a.Err
	})}, nil
}

// Run polls for redriven messages until ctx ends, and then returns nil. A handler that is in progress
// is told by its context. Errors are logged; the next poll tries again.
func (r *Redeliverer) Run(ctx context.Context) error {
	var failing failure.Standing
	ticker := time.NewTicker(r.cfg.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		n, err := Redeliver(ctx, r.db, r.consumer, r.handler, r.options...)
		if n > 0 {
			r.cfg.Log.InfoContext(ctx, "redriven messages handled", "consumer", r.consumer, "messages", n)
		}
		switch {
		case ctx.Err() != nil:
		case err != nil:
			if failing.Failed(err) {
				r.cfg.Log.WarnContext(ctx, "redriven messages failed", "consumer", r.consumer, "error", err)
			}
		default:
			if lasted, was := failing.Works(); was {
				r.cfg.Log.InfoContext(ctx, "redriven messages fail no more", "consumer", r.consumer, "after", lasted)
			}
		}
	}
}
