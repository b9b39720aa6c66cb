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

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/cleanup"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/internal/capture"
	"github.com/gorm-fanout/fanout/internal/failure"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox/admin"
	"github.com/gorm-fanout/fanout/outbox/relay"
	"github.com/gorm-fanout/fanout/telemetry/otelrelay"
)

// Open connects to the databases, checks how they are set up and their schema, and makes the
// clients of the brokers. A database must answer; a broker may be down, and is tried when there is
// something to deliver. All problems are reported in one error; what is no problem but should be
// otherwise, is logged as a warning: see admin.Diagnosis. The relay does nothing until Run; close
// it in any case. A nil configuration is one with its defaults.
func Open(ctx context.Context, cfg *config.Config, opts ...Option) (*Relay, error) {
	o := gather(opts)
	cfg, err := complete(cfg, o)
	if cfg == nil {
		return nil, err
	}
	r := &Relay{stores: map[string]driver.Store{}, brokers: map[string]brokers.Broker{}, cfg: cfg, log: o.log}
	err = errors.Join(err, r.openStores(ctx, cfg, o), r.openBrokers(ctx, cfg, o))
	if err == nil {
		err = r.assemble(cfg, o)
	}
	if err != nil {
		_ = r.Close() //nolint:contextcheck // the first error tells what happened; closing has its own time
		return nil, err
	}
	return r, nil
}

// openStores opens all at once: one that does not answer must not use up the time of the others, which
// would be reported, too.
func (r *Relay) openStores(ctx context.Context, cfg *config.Config, o *options) error {
	names := slices.Sorted(maps.Keys(cfg.Databases))
	problems := make([]error, len(names))
	var (
		mu    sync.Mutex
		group sync.WaitGroup
	)
	for i, name := range names {
		group.Go(func() {
			store, err := openStore(ctx, cfg, name, o)
			if err == nil {
				mu.Lock()
				r.stores[name] = store
				mu.Unlock()
				var report func()
				report, err = examine(ctx, name, store, o.log)
				report()
			}
			if err != nil {
				problems[i] = fmt.Errorf("fanout: database %q: %w", name, err)
			}
		})
	}
	group.Wait()
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
		if can := broker.Capabilities(); !can.Takes(cfg.Outbox.MaxPayloadBytes) {
			o.log.WarnContext(ctx, "payload limit above the broker's", "broker", name, "max_payload_bytes", cfg.Outbox.MaxPayloadBytes, "broker_takes", can.MaxMessageBytes)
		}
	}
	return errors.Join(problems...)
}

// assemble makes the processors and the cleaner, and connects the wake-ups.
func (r *Relay) assemble(cfg *config.Config, o *options) error {
	stores := make(map[string]driver.Delivery, len(r.stores))
	purgers := make(map[string]cleanup.Table, len(r.stores))
	for name, store := range r.stores {
		stores[name], purgers[name] = store, store
	}
	targets := make(map[string]relay.Target, len(r.brokers))
	for name, broker := range r.brokers {
		keys, err := cfg.SigningKeys(name)
		if err != nil {
			return fmt.Errorf("fanout: broker %q: sign: %w", name, err)
		}
		targets[name] = relay.Target{Broker: broker, Policy: policyOf(cfg, name, o), Sign: keys}
	}
	observer, err := r.observe(o)
	if err != nil {
		return err
	}
	common := relay.EngineConfig{Brokers: targets, Log: o.log, Name: o.name, Version: programVersion(), Observer: observer}
	if len(stores) > 0 || !o.hasTenants(cfg) {
		own := common
		own.Stores, own.Listen = stores, listening(cfg)
		if r.engine, err = relay.NewEngine(own); err != nil {
			return err
		}
	}
	if err = r.openTenants(cfg, o, common); err != nil {
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
	for _, w := range o.writers {
		r.wakenBy(w.database, w.Writer)
	}
	for name, db := range o.handles {
		source, ok := db.Plugins[capture.HooksName].(wakeup.Source)
		if !ok {
			o.log.Warn("GORM handle has no outbox plugin: only polling finds its rows", "database", name)
			continue
		}
		r.wakenBy(name, source)
	}
	return nil
}

// listening names the databases on which the relay listens.
func listening(cfg *config.Config) (names []string) {
	for name, database := range cfg.Databases {
		if database.Notify {
			names = append(names, name)
		}
	}
	return names
}

// wakenBy has the commits of a source wake the processors of a database.
func (r *Relay) wakenBy(database string, source wakeup.Source) {
	_, own := r.stores[database]
	r.cancels = append(r.cancels, source.OnCommit(func(wakeUps []wakeup.WakeUp) bool {
		if !own {
			return r.tenants.wake(database, wakeUps)
		}
		return r.engine.Wake(database, wakeUps...)
	}))
}

// stampedVersion is the version of a program that is built of files alone, as in an image:
// -ldflags "-X github.com/gorm-fanout/fanout.stampedVersion=v1.2.3".
var stampedVersion string //nolint:gochecknoglobals // the linker sets it

// programVersion is the version of the program that runs the relay: the one that the linker was
// given, or else that of the build information.
func programVersion() string {
	if stampedVersion != "" {
		return stampedVersion
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return ""
}

// examine checks that a relay can work with a database; report logs what an operator should change
// there. Settings that cannot be read are no obstacle.
func examine(ctx context.Context, name string, store driver.Store, log *slog.Logger) (report func(), err error) {
	diagnosis, unread := store.Diagnose(ctx)
	report = func() {
		log := log.With("database", name)
		if unread != nil {
			log.WarnContext(ctx, "database settings not read", "error", unread)
		}
		for _, finding := range diagnosis.Warnings() {
			if finding.Passing { // the engine looks for these
				continue
			}
			log.WarnContext(ctx, "database settings need a change", "topic", finding.Topic, "problem", finding.Message)
		}
	}
	if err := diagnosis.Err(); err != nil {
		return report, err
	}
	return report, check(ctx, store)
}

// checkTries is how often a relay checks a schema while the database ends the session of the check.
const checkTries = 3

func check(ctx context.Context, store driver.Store) error {
	for try := 1; ; try++ {
		err := store.Check(ctx)
		if try == checkTries || failure.Class(err) != failure.ClassConnection {
			return err
		}
	}
}

// observe makes what looks at the processors; nil where it is not configured.
func (r *Relay) observe(o *options) (relay.Observer, error) {
	var (
		list     []relay.Observer
		problems []error
	)
	if o.measured {
		var err error
		if r.metrics, err = otelrelay.NewMetrics(o.meters); err != nil {
			problems = append(problems, fmt.Errorf("fanout: WithMeterProvider: %w", err))
		} else {
			list = append(list, r.metrics)
		}
	}
	if o.traced {
		tracer, err := otelrelay.NewTracer(o.tracers, otelrelay.TracerConfig{})
		if err != nil {
			problems = append(problems, fmt.Errorf("fanout: WithTracerProvider: %w", err))
		} else {
			list = append(list, tracer)
		}
	}
	return relay.Observers(list...), errors.Join(problems...)
}

// watch lets the gauges follow the relay until it is closed.
func (r *Relay) watch() error {
	if r.metrics == nil {
		return nil
	}
	browsers := make(map[string]admin.Administration, len(r.stores))
	for name, store := range r.stores {
		browsers[name] = store
	}
	sources := otelrelay.Sources{Stats: r.Stats, Databases: browsers, Brokers: r.cfg.BrokerNames(), Log: r.log}
	if r.tenants != nil {
		sources.More, sources.Tenants = r.tenants.awake, r.tenants.States
	}
	stop, err := r.metrics.Watch(sources)
	if err != nil {
		return fmt.Errorf("fanout: WithMeterProvider: %w", err)
	}
	r.cancels = append(r.cancels, func() { _ = stop() }) // a provider that is shut down has nothing left to stop
	return nil
}

// purged counts what a purge has removed.
func (r *Relay) purged(ctx context.Context, report cleanup.Report) {
	if r.metrics != nil && !report.Skipped {
		r.metrics.Purged(ctx, report.Database, report.Published+report.Abandoned)
	}
}
