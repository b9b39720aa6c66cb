package session

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/gorm-fanout/fanout/inbox"
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
