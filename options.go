package fanout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/internal/capture"
	"github.com/gorm-fanout/fanout/outbox"
)

// An Option refines Open.
type Option func(*options)

type options struct {
	handles map[string]*gorm.DB
	writers []writer
	brokers map[string]brokers.Broker
	types   []adapter.Type
	workers int
	log     *slog.Logger
	name    string
	tenants func(ctx context.Context) (map[string]config.Database, error)

	meters           metric.MeterProvider
	tracers          trace.TracerProvider
	measured, traced bool
}

// WithDB connects a database of the configuration with the application's own GORM handle, or makes the
// handle one of its databases where it names none: the relay
// is woken when a transaction commits, and takes the data source name from the handle where the
// configuration gives none. On SQLite it uses the handle itself, whatever the dsn, since a file must not
// be opened by two SQLite libraries in one process; a dsn of another file is an error of Open.
func WithDB(name string, db *gorm.DB) Option {
	return func(o *options) { o.handles[name] = db }
}

// writer writes events into a database of the configuration without GORM.
type writer struct {
	database string
	*outbox.Writer
}

// WithWriter connects a database of the configuration with a writer of events of the application's own
// that uses no GORM: the relay is woken by outbox.Written.Committed. A database may have several. The
// configuration has to name the database and, unless WithDB gives its handle, its data source name.
func WithWriter(name string, w *outbox.Writer) Option {
	return func(o *options) { o.writers = append(o.writers, writer{name, w}) }
}

// WithBroker gives a broker that is open already instead of one made from the configuration, which
// has to use a broker of that name: the internal one, called "default", or one of the external ones. Closing the relay closes it.
func WithBroker(name string, broker brokers.Broker) Option {
	return func(o *options) { o.brokers[name] = broker }
}

// WithBrokerType links a type of broker, whose adapter is in a module of its own, or the application's:
//
//	fanout.WithBrokerType(kafka.Type())
//
// Sections of that type in the configuration are checked by it, and its brokers can be opened. Types
// redis, rabbitmq, webhook and memory are built in, and need none.
func WithBrokerType(kind adapter.Type) Option {
	return func(o *options) { o.types = append(o.types, kind) }
}

// WithWorkers overrides the number of workers of every processor; 0 changes nothing.
func WithWorkers(n int) Option { return func(o *options) { o.workers = n } }

// WithName names this process in the list of instances that each database keeps. Default: the
// host's name. Two processes may have the same name.
func WithName(name string) Option { return func(o *options) { o.name = name } }

// WithLogger sets where the relay logs. Default: slog.Default().
func WithLogger(log *slog.Logger) Option { return func(o *options) { o.log = log } }

// WithMeterProvider measures what the relay does: see docs/metrics.md. Package telemetry/prometheus
// has a provider that Prometheus can scrape. Default: nothing is measured, not even with
// OpenTelemetry's global provider.
func WithMeterProvider(provider metric.MeterProvider) Option {
	return func(o *options) { o.meters, o.measured = provider, true }
}

// WithTracerProvider draws spans of what the relay publishes, linked with those of the producers:
// see package telemetry/otelrelay. Default: none are drawn. Messages carry the trace context of
// their producer in any case.
func WithTracerProvider(provider trace.TracerProvider) Option {
	return func(o *options) { o.tracers, o.traced = provider, true }
}

func gather(opts []Option) *options {
	o := &options{
		handles: map[string]*gorm.DB{}, brokers: map[string]brokers.Broker{}, log: slog.Default(),
	}
	for _, opt := range opts {
		opt(o)
	}
	return o
}

// checkHandles finds handles and brokers that are nil or that the configuration does not know, and
// plugins that write elsewhere than the relay reads. What is nil is forgotten, so that the other
// problems can be looked for.
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
		if _, ok := cfg.Databases[name]; !ok && !o.hasTenants(cfg) {
			problems = append(problems, fmt.Errorf("fanout: WithDB(%q): the configuration has no such database (it has %q)", name, slices.Sorted(maps.Keys(cfg.Databases))))
		}
		if plugin, ok := pluginOf(o.handles[name]); ok {
			problems = append(problems, checkRouting(fmt.Sprintf("WithDB(%q): its plugin", name), plugin.Routing(), cfg))
		}
	}
	o.writers = slices.DeleteFunc(o.writers, func(w writer) bool {
		if w.Writer == nil {
			problems = append(problems, fmt.Errorf("fanout: WithWriter(%q): the writer is nil: did outbox.NewWriter fail?", w.database))
			return true
		}
		problems = append(problems, w.check(cfg, o.hasTenants(cfg)))
		return false
	})
	return errors.Join(problems...)
}

// hasTenants reports whether handles and writers may be those of tenants.
func (o *options) hasTenants(cfg *config.Config) bool {
	return o.tenants != nil || cfg.Tenants.File != ""
}

// check finds a writer whose rows the relay would not read.
func (w writer) check(cfg *config.Config, tenants bool) error {
	database, ok := cfg.Databases[w.database]
	if !ok && tenants {
		database.Driver = w.Dialect()
	} else if !ok {
		return fmt.Errorf("fanout: WithWriter(%q): the configuration has no such database (it has %q)", w.database, slices.Sorted(maps.Keys(cfg.Databases)))
	}
	if w.Dialect() == "" {
		return fmt.Errorf("fanout: WithWriter(%q): the writer is empty: make it with outbox.NewWriter", w.database)
	}
	if w.Dialect() != database.Driver {
		return fmt.Errorf("fanout: WithWriter(%q): the writer is for %s, the configuration says %s", w.database, w.Dialect(), database.Driver)
	}
	return checkRouting(fmt.Sprintf("WithWriter(%q): it", w.database), w.Routing(), cfg)
}

// externalOf names the external brokers of a routing.
func externalOf(r outbox.Routing) []string {
	names := make([]string, len(r.External))
	for i := range r.External {
		names[i] = r.External[i].Broker
	}
	slices.Sort(names)
	return names
}

// checkRouting finds rows that the relay would not read, and a routing that was forgotten: it writes
// nothing for partners, and locks no keys.
func checkRouting(who string, writes outbox.Routing, cfg *config.Config) error {
	reads := cfg.Routing().WithDefaults()
	var problems []error
	if writes.Table != reads.Table || writes.InternalBroker != reads.InternalBroker {
		problems = append(problems, fmt.Errorf("fanout: %s writes to table %q for broker %q, the relay reads table %q for broker %q: give both the same configuration",
			who, writes.Table, writes.InternalBroker, reads.Table, reads.InternalBroker))
	}
	if wrote, read := externalOf(writes), externalOf(reads); !slices.Equal(wrote, read) {
		problems = append(problems, fmt.Errorf("fanout: %s writes for the external brokers %q, the configuration has %q: give both the same configuration", who, wrote, read))
	}
	if writes.SerializeKeys != reads.SerializeKeys {
		problems = append(problems, fmt.Errorf("fanout: %s has SerializeKeys %t, the configuration %t: all writers of a table have to agree",
			who, writes.SerializeKeys, reads.SerializeKeys))
	}
	return errors.Join(problems...)
}

// pluginOf is the capture plugin of a GORM handle.
func pluginOf(db *gorm.DB) (plugin *gormplugin.Plugin, ok bool) {
	plugin, ok = db.Plugins[capture.PluginName].(*gormplugin.Plugin)
	return plugin, ok
}
