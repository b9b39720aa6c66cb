// Package fanout is a transactional outbox for GORM that fans out to many brokers.
//
// An application registers one GORM plugin (package gormplugin), declares its brokers in a configuration (package config)
// and marks the events that partners may see (package envelope). What its aggregates raise (package uow) is written in
// the same transaction, one row per target broker, and delivered by independent processors (package outbox).
//
// This package links every provider and opens a relay from a configuration. A program that wants to link only what it
// uses composes the parts by hand: a store, a broker and an outbox.Engine.
package fanout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/cleanup"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/monitor/metrics"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// A Relay delivers the rows of all configured databases to all configured brokers, and purges finished rows.
type Relay struct {
	engine  *outbox.Engine
	cleaner *cleanup.Scheduler
	stores  map[string]outbox.FullStore
	brokers map[string]brokers.Broker
	metrics *metrics.Metrics // nil: nothing is measured
	cancels []func()
	close   sync.Once
	closed  error

	cfg      *config.Config
	log      *slog.Logger
	running  atomic.Bool
	mu       sync.Mutex
	handlers []*monitor.Handler
}

// An Option refines Open.
type Option func(*options)

type options struct {
	handles map[string]*gorm.DB
	brokers map[string]brokers.Broker
	types   map[string]BrokerFactory
	workers int
	log     *slog.Logger
	name    string

	meters           metric.MeterProvider
	tracers          trace.TracerProvider
	measured, traced bool
}

// BrokerFactory opens a broker of a type that the application brings along.
type BrokerFactory func(ctx context.Context, name string, cfg config.Broker) (brokers.Broker, error)

// WithDB connects a database of the configuration with the application's own GORM handle: the relay is woken when a
// transaction commits, and takes the data source name from the handle where the configuration gives none.
func WithDB(name string, db *gorm.DB) Option {
	return func(o *options) { o.handles[name] = db }
}

// WithBroker gives a broker that is open already instead of one made from the configuration, which has to use a broker of that name.
// Closing the relay closes it.
func WithBroker(name string, broker brokers.Broker) Option {
	return func(o *options) { o.brokers[name] = broker }
}

// WithBrokerType registers a type of broker for the configuration; see config.WithBrokerTypes.
func WithBrokerType(name string, factory BrokerFactory) Option {
	return func(o *options) { o.types[name] = factory }
}

// WithWorkers overrides the number of workers of every processor; 0 changes nothing.
func WithWorkers(n int) Option { return func(o *options) { o.workers = n } }

// WithName names this process in the list of instances that each database keeps. Default: the host's name. Two processes may
// have the same name.
func WithName(name string) Option { return func(o *options) { o.name = name } }

// WithLogger sets where the relay logs. Default: slog.Default().
func WithLogger(log *slog.Logger) Option { return func(o *options) { o.log = log } }

// Open connects to the databases, checks how they are set up and their schema, and makes the clients of the brokers. A
// database must answer; a broker may be down, and is tried when there is something to deliver. All problems are reported in
// one error; what is no problem but should be otherwise, is logged as a warning: see outbox.Diagnosis. The relay does nothing
// until Run; close it in any case.
func Open(ctx context.Context, cfg *config.Config, opts ...Option) (*Relay, error) {
	o := gather(opts)
	r := &Relay{stores: map[string]outbox.FullStore{}, brokers: map[string]brokers.Broker{}, cfg: cfg, log: o.log}
	err := errors.Join(o.checkHandles(cfg), r.openStores(ctx, cfg, o), r.openBrokers(ctx, cfg, o))
	if err == nil {
		err = r.assemble(cfg, o)
	}
	if err != nil {
		_ = r.Close() //nolint:contextcheck // the first error tells what happened; closing has its own time
		return nil, err
	}
	return r, nil
}

func gather(opts []Option) *options {
	o := &options{handles: map[string]*gorm.DB{}, brokers: map[string]brokers.Broker{}, types: map[string]BrokerFactory{}, log: slog.Default()}
	for _, option := range opts {
		option(o)
	}
	return o
}

// checkHandles finds handles and brokers that are nil or that the configuration does not know, and plugins that write elsewhere than
// the relay reads. What is nil is forgotten, so that the other problems can be looked for.
func (o *options) checkHandles(cfg *config.Config) error {
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(o.brokers)) {
		if !slices.Contains(cfg.BrokerNames(), name) {
			problems = append(problems, fmt.Errorf("fanout: WithBroker(%q): the configuration uses no such broker (it uses %q)", name, cfg.BrokerNames()))
		}
		if o.brokers[name] == nil {
			problems = append(problems, fmt.Errorf("fanout: WithBroker(%q): the broker is nil", name))
			delete(o.brokers, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.handles)) {
		if o.handles[name] == nil {
			problems = append(problems, fmt.Errorf("fanout: WithDB(%q): the handle is nil: did gorm.Open fail?", name))
			delete(o.handles, name)
			continue
		}
		if _, ok := cfg.Databases[name]; !ok {
			problems = append(problems, fmt.Errorf("fanout: WithDB(%q): the configuration has no such database (it has %q)", name, slices.Sorted(maps.Keys(cfg.Databases))))
		}
		if plugin, ok := o.handles[name].Plugins[uow.PluginName].(interface{ Routing() outbox.Routing }); ok {
			writes, reads := plugin.Routing(), cfg.Routing().WithDefaults()
			if writes.Table != reads.Table || writes.InternalBroker != reads.InternalBroker {
				problems = append(problems, fmt.Errorf("fanout: WithDB(%q): its plugin writes to table %q for broker %q, the relay reads table %q for broker %q: "+
					"give both the same configuration",
					name, writes.Table, writes.InternalBroker, reads.Table, reads.InternalBroker))
			}
		}
	}
	return errors.Join(problems...)
}

func (r *Relay) openStores(ctx context.Context, cfg *config.Config, o *options) error {
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(cfg.Databases)) {
		store, err := openStore(ctx, cfg, name, o)
		if err == nil {
			r.stores[name] = store
			err = examine(ctx, name, store, o.log)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("fanout: database %q: %w", name, err))
		}
	}
	return errors.Join(problems...)
}

func (r *Relay) openBrokers(ctx context.Context, cfg *config.Config, o *options) error {
	var problems []error
	for _, name := range cfg.BrokerNames() {
		broker, err := openBroker(ctx, name, cfg.Brokers[name], o)
		if err != nil {
			problems = append(problems, fmt.Errorf("fanout: broker %q: %w", name, err))
			continue
		}
		r.brokers[name] = broker
	}
	return errors.Join(problems...)
}

// assemble makes the processors and the cleaner, and connects the wake-ups.
func (r *Relay) assemble(cfg *config.Config, o *options) error {
	stores := make(map[string]outbox.Store, len(r.stores))
	purgers := make(map[string]outbox.Purger, len(r.stores))
	for name, store := range r.stores {
		stores[name], purgers[name] = store, store
	}
	targets := make(map[string]outbox.Target, len(r.brokers))
	for name, broker := range r.brokers {
		targets[name] = outbox.Target{Broker: broker, Policy: policyOf(cfg, name, o)}
	}
	var listen []string
	for name, database := range cfg.Databases {
		if database.Notify {
			listen = append(listen, name)
		}
	}
	observer, err := r.observe(o)
	if err != nil {
		return err
	}
	if r.engine, err = outbox.NewEngine(outbox.EngineConfig{
		Stores: stores, Brokers: targets, Listen: listen, Log: o.log, Name: o.name, Version: programVersion(), Observer: observer,
	}); err != nil {
		return err
	}
	cleaning := cleanupConfig(cfg, purgers, o.log)
	cleaning.OnReport = r.purged
	if r.cleaner, err = cleanup.New(cleaning); err != nil {
		return err
	}
	if err = r.watch(); err != nil {
		return err
	}
	for name, db := range o.handles {
		plugin, ok := db.Plugins[uow.PluginName].(interface {
			OnCommit(f func(arrivals []outbox.Arrival) (served bool)) (cancel func())
		})
		if !ok {
			o.log.Warn("the GORM handle has no outbox plugin: the relay finds its rows by polling alone", "database", name)
			continue
		}
		r.cancels = append(r.cancels, plugin.OnCommit(func(arrivals []outbox.Arrival) bool { return r.engine.Wake(name, arrivals...) }))
		r.connectHandOff(name, db, o.log)
	}
	return nil
}

// programVersion is the version of the program that runs the relay, as its build knows it.
func programVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return ""
}

// Run delivers and purges until ctx ends, finishes or releases what is in hand, and closes the relay. Run a relay once, and
// let the program end only after Run has returned: rows that a process had in hand when it died wait until their lease ends.
func (r *Relay) Run(ctx context.Context) error {
	var group errgroup.Group
	group.Go(func() error {
		r.running.Store(true)
		defer r.running.Store(false)
		return r.engine.Run(ctx)
	})
	group.Go(func() error { return r.cleaner.Run(ctx) })
	r.mu.Lock()
	for _, handler := range r.handlers {
		group.Go(func() error { return handler.Run(ctx) })
	}
	r.mu.Unlock()
	return errors.Join(group.Wait(), r.Close()) //nolint:contextcheck // ctx has ended; closing has its own time
}

// Stats returns the counters of every processor.
func (r *Relay) Stats() []outbox.Stats { return r.engine.Stats() }

// closeTimeout bounds how long Close waits for one broker.
const closeTimeout = 10 * time.Second

// Close releases all connections. It is safe to call more than once.
func (r *Relay) Close() error {
	r.close.Do(func() {
		for _, cancel := range r.cancels {
			cancel()
		}
		var problems []error
		for _, name := range slices.Sorted(maps.Keys(r.brokers)) {
			ctx, cancel := context.WithTimeout(context.Background(), closeTimeout) // what closes has no caller to wait for
			if err := r.brokers[name].Close(ctx); err != nil {
				problems = append(problems, fmt.Errorf("fanout: close broker %q: %w", name, err))
			}
			cancel()
		}
		for _, name := range slices.Sorted(maps.Keys(r.stores)) {
			if err := r.stores[name].Close(); err != nil {
				problems = append(problems, fmt.Errorf("fanout: close database %q: %w", name, err))
			}
		}
		r.closed = errors.Join(problems...)
	})
	return r.closed
}
