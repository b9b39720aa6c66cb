package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/internal/failure"
)

// The defaults of consumers.
const (
	DefaultWorkers         = 10
	DefaultShutdownTimeout = 30 * time.Second
)

// grace is for what has to end after the shutdown timeout.
const grace = 10 * time.Second

// Options are what all consumers have.
type Options struct {
	// Package is the consumer's, for errors.
	Package string
	// Consumer is whose effect happens once, Source where messages come from; see [inbox.Message].
	Consumer, Source string
	Workers          int
	Retry            inbox.Retry
	Timeout          time.Duration
	Observer         inbox.Observer
	Log              *slog.Logger
	Shutdown         time.Duration
}

// Defaults are the options of a consumer that sets none.
func Defaults(pkg string) Options {
	return Options{
		Package: pkg, Workers: DefaultWorkers, Retry: inbox.DefaultRetry(), Timeout: inbox.DefaultTimeout, Shutdown: DefaultShutdownTimeout,
		Log: slog.Default(),
	}
}

// Complain makes an error of a finding, nil where it is none.
func (o *Options) Complain(bad bool, format string, args ...any) error {
	if !bad {
		return nil
	}
	return fmt.Errorf(o.Package+": "+format, args...)
}

// Check reports all that is wrong. source is what the broker calls the source: it becomes the
// default of Source, and group that of Consumer.
func (o *Options) Check(handler inbox.Handler, group, source string) error {
	wrong := []error{
		o.Complain(handler == nil, "the handler is nil"),
		o.Complain(o.Workers < 1, "WithWorkers: %d: give at least 1", o.Workers),
		o.Complain(o.Timeout <= 0, "WithTimeout: %s: give a positive time", o.Timeout),
		o.Complain(o.Shutdown < 0, "WithShutdownTimeout: %s: give 0 or more", o.Shutdown),
	}
	if handler != nil {
		wrong = append(wrong, inbox.Validate(handler))
	}
	if err := o.Retry.Validate(); err != nil {
		wrong = append(wrong, fmt.Errorf("%s: WithRetry: %w", o.Package, err))
	}
	if o.Consumer == "" {
		o.Consumer = group
	}
	if err := inbox.ValidateConsumer(o.Consumer); err != nil {
		wrong = append(wrong, fmt.Errorf("%s: WithConsumer: %w", o.Package, err))
	}
	if o.Source == "" {
		o.Source = source // a long one is bounded by itself
	} else if err := inbox.ValidateSource(o.Source); err != nil {
		wrong = append(wrong, fmt.Errorf("%s: WithSource: %w", o.Package, err))
	}
	return errors.Join(wrong...)
}

// Settings are those of a session with these options.
func (o *Options) Settings(handler inbox.Handler, log *slog.Logger, counts *Counts) Settings {
	return Settings{
		Runner:  inbox.Runner{Handler: handler, Retry: o.Retry, Timeout: o.Timeout, Observer: o.Observer, Log: o.Log},
		Workers: o.Workers, Shutdown: o.Shutdown, Grace: grace, Log: log, Counts: counts,
	}
}

// An Outage logs that a broker is out, again when the class of the cause changes, and once that it
// is there again. The zero value is that of a broker of which nothing is known yet; Log has to be
// set. It is safe for concurrent use.
type Outage struct {
	Log *slog.Logger
	// Steady is how long nothing must have failed before it is over. Default: 0, the first answer ends it.
	// A client with several connections has answers on one while another is still out.
	Steady time.Duration

	mu       sync.Mutex
	standing failure.Standing
	failures int
	last     time.Time // failure
}

// pauses between attempts to reach a broker.
var pauses = inbox.Retry{BaseDelay: 50 * time.Millisecond, MaxDelay: 5 * time.Second}

// PauseAfter is the pause after the n-th failure in a row of something that is done at the broker.
func PauseAfter(n int) time.Duration { return pauses.Delay(n) }

// Failed notes an attempt that failed, and returns how long to wait before the next one.
func (o *Outage) Failed(ctx context.Context, err error) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failures++
	o.last = time.Now()
	if o.standing.Failed(err) {
		o.Log.WarnContext(ctx, "broker unavailable", "error", err)
	}
	return PauseAfter(o.failures)
}

// Over notes that the broker has answered.
func (o *Outage) Over(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.last) < o.Steady {
		return
	}
	if lasted, was := o.standing.Over(); was {
		o.Log.InfoContext(ctx, "broker available again", "after", lasted)
	}
	o.failures = 0
}
