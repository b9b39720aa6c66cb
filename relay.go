// Package fanout is a transactional outbox for GORM that fans out to many brokers.
//
// An application registers one GORM plugin (package gormplugin), declares its brokers in a
// configuration (package config) and marks the events that partners may see (package envelope).
// What its aggregates raise (package uow) is written in the same transaction, one row per target
// broker, and delivered by independent processors (package outbox).
//
// This package links every provider and opens a relay from a configuration. A program that wants to
// link only what it uses composes the parts by hand: a store, a broker and an relay.Engine.
package fanout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/cleanup"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/monitor/dashboard"
	"github.com/gorm-fanout/fanout/outbox/admin"
	"github.com/gorm-fanout/fanout/outbox/relay"
	"github.com/gorm-fanout/fanout/telemetry/otelrelay"
)

// A Relay delivers the rows of all configured databases to all configured brokers, and purges
// finished rows.
type Relay struct {
	engine  *relay.Engine // of the databases of the configuration; nil where there are only tenants
	cleaner *cleanup.Scheduler
	tenants *tenantPool // nil: there are none
	stores  map[string]driver.Store
	brokers map[string]brokers.Broker
	metrics *otelrelay.Metrics // nil: nothing is measured
	cancels []func()
	close   sync.Once
	closed  error

	cfg      *config.Config
	log      *slog.Logger
	running  atomic.Bool
	mu       sync.Mutex
	handlers []*monitor.Handler
}

// Run delivers and purges until ctx ends, finishes or releases the claimed rows, and closes the
// relay. Run a relay once, and let the program end only after Run has returned: rows that a process
// had claimed when it died wait until their lease ends.
func (r *Relay) Run(ctx context.Context) error {
	var group errgroup.Group
	group.Go(func() error {
		r.running.Store(true)
		defer r.running.Store(false)
		if r.engine == nil {
			<-ctx.Done()
			return nil
		}
		return r.engine.Run(ctx)
	})
	if r.tenants != nil {
		group.Go(func() error { return r.tenants.Run(ctx) })
	}
	group.Go(func() error { return r.cleaner.Run(ctx) })
	r.mu.Lock()
	for _, handler := range r.handlers {
		group.Go(func() error { return handler.Run(ctx) })
	}
	r.mu.Unlock()
	return errors.Join(group.Wait(), r.Close()) //nolint:contextcheck // ctx has ended; closing has its own time
}

// Stats returns the counters of every processor: of tenants those that are awake, since they woke.
func (r *Relay) Stats() (stats []relay.Stats) {
	if r.engine != nil {
		stats = r.engine.Stats()
	}
	if r.tenants != nil {
		stats = append(stats, r.tenants.stats()...)
	}
	return stats
}

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

// MonitorOptions refine [Relay.Monitor]. Zero values take the defaults.
type MonitorOptions struct {
	// Authorise says who asks, as the application knows its users. Default: by the tokens of the
	// configuration; where there are none anyone may look, and no one may act or see a payload.
	Authorise func(*http.Request) (monitor.Identity, error)
	// CSRFKey is for an Authorise behind a load balancer, see [monitor.Config]. Default:
	// monitor.csrf_key of the configuration.
	CSRFKey string
	// Assets of the dashboard. Default: those of package monitor/dashboard.
	Assets fs.FS
	// Metrics answers GET /metrics. Default: 404.
	Metrics http.Handler
	// Consumers are those whose inboxes a search for a message looks into. Default: none.
	Consumers map[string]monitor.Consumer
}

// Monitor makes the HTTP interface for the people who run the outbox: the API, the probes and the
// dashboard, to be mounted in the application's own server, under a prefix with http.StripPrefix.
// Its history is filled while [Relay.Run] runs, so make it before that. It answers until the relay
// is closed.
func (r *Relay) Monitor(opts MonitorOptions) (http.Handler, error) {
	var err error
	cfg := monitor.Config{
		Console: r.Console(monitor.WithConsumers(opts.Consumers)), Stats: r.Stats, Running: r.running.Load, Authorise: opts.Authorise, Assets: opts.Assets, Metrics: opts.Metrics,
		Version: programVersion(), Log: r.log, CSRFKey: cmp.Or(opts.CSRFKey, r.cfg.Monitor.CSRFKey.Reveal()),
	}
	if cfg.Assets == nil {
		cfg.Assets = dashboard.Assets
	}
	if opts.Authorise == nil && len(r.cfg.Monitor.ViewerTokens)+len(r.cfg.Monitor.OperatorTokens) > 0 {
		if cfg.Tokens, err = monitor.NewTokens(reveal(r.cfg.Monitor.ViewerTokens), reveal(r.cfg.Monitor.OperatorTokens)); err != nil {
			return nil, fmt.Errorf("fanout: %w", err)
		}
	}
	handler, err := monitor.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("fanout: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handlers = append(r.handlers, handler)
	return handler, nil
}

// Console looks at the relay's databases and repairs them by hand. It works until the relay is
// closed. Of tenants it has those that are awake: no question opens a connection to one that sleeps.
// The brokers and their retention are those of the configuration.
func (r *Relay) Console(opts ...monitor.Option) *monitor.Console {
	stores := make(map[string]admin.Administration, len(r.stores))
	for name, store := range r.stores {
		stores[name] = store
	}
	if r.tenants != nil {
		opts = append(opts, monitor.WithMore(r.tenants.awake))
	}
	return monitor.NewConsole(stores, append(opts, monitor.WithBrokers(r.cfg.BrokerNames()...), monitor.WithRetention(r.cfg.Retention), monitor.WithNotKept(r.cfg.NotKept()...))...)
}

func reveal(secrets map[string]config.Secret) map[string]string {
	plain := make(map[string]string, len(secrets))
	for name, secret := range secrets {
		plain[name] = secret.Reveal()
	}
	return plain
}
