// Package gormplugin captures what aggregates raise and writes it to the outbox when GORM commits.
//
//	err := db.Use(gormplugin.New(events, cfg.Routing()))
//
// GORM has callbacks for statements, but no hook for a commit. The plugin therefore does two
// things. Callbacks on create, update and delete note which aggregates a successful statement
// wrote. And the connection pool is wrapped, so that every transaction that GORM begins is one of
// ours: its Commit writes the rows of all events, commits, and only then clears them from the
// aggregates. Where a transaction was begun behind GORM's back, rows are written at the statement.
package gormplugin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/capture"
	"github.com/gorm-fanout/fanout/internal/unsetid"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
)

// Plugin is the GORM plugin. Make one per database handle with [New]. It is safe for concurrent
// use.
type Plugin struct {
	events    *envelope.Catalog
	routing   outbox.Routing
	strict    bool
	log       *slog.Logger
	enrichers []func(context.Context) context.Context

	kinds    sync.Map // reflect.Type -> *kind
	sources  sourceCache
	left     atomic.Int64
	again    atomic.Int64
	unset    unsetid.Warnings
	unseen   sync.Once // for the warning about a transaction on a pool of others
	outcomes outcomes
	begun    begun

	classes      classes
	associations sync.Map // string -> bool: tables that were warned of: see warnOfAssociation

	mu        sync.Mutex
	inserters map[outbox.Dialect]*outbox.Inserter
	notifier  *wakeup.Notifier // of the handle's own pool
	notifiers map[*sql.DB]*wakeup.Notifier
	listeners wakeup.Listeners
}

var _ gorm.Plugin = (*Plugin)(nil)

// An Option refines the plugin.
type Option func(*Plugin)

// WithStrict makes a commit fail, and roll back, when it would leave events behind on an aggregate
// that it touched: an UPDATE that changed no row, say; or write one that names its own aggregate with a
// zero id. Without it such a commit succeeds and a warning is logged.
func WithStrict() Option { return func(p *Plugin) { p.strict = true } }

// WithEnricher adds to what events inherit from the context of the statement that captures them.
// The function gets that context and returns one that carries more, by envelope.WithActor,
// WithTenantID, WithExtension and the like: values that the application keeps under keys of its
// own. It runs once per statement, in the goroutine of the statement, several in the order in which
// they are given.
func WithEnricher(enrich func(context.Context) context.Context) Option {
	return func(p *Plugin) { p.enrichers = append(p.enrichers, enrich) }
}

// WithLogger sets where warnings go. Default: slog.Default().
func WithLogger(log *slog.Logger) Option { return func(p *Plugin) { p.log = log } }

// New makes a plugin for the event types of a catalog. Problems of the catalog and of the routing
// surface in db.Use.
func New(events *envelope.Catalog, routing outbox.Routing, opts ...Option) *Plugin {
	p := &Plugin{events: events, routing: routing.WithDefaults(), log: slog.Default(), inserters: map[outbox.Dialect]*outbox.Inserter{}}
	for _, opt := range opts {
		opt(p)
	}
	return p
}

// Name implements gorm.Plugin.
func (p *Plugin) Name() string { return capture.PluginName }

// Routing returns the routing with its defaults.
func (p *Plugin) Routing() outbox.Routing { return p.routing }

// Initialize implements gorm.Plugin. It may run more than once, for each pool that a resolver
// opens.
func (p *Plugin) Initialize(db *gorm.DB) error {
	dialect, err := outbox.ParseDialect(db.Name())
	if err := errors.Join(err, p.check()); err != nil {
		return fmt.Errorf("gormplugin: %w", err)
	}
	inserter, err := p.inserter(dialect)
	if err != nil {
		return fmt.Errorf("gormplugin: %w", err)
	}
	if sharesConfig(db) {
		return errors.New("gormplugin: the handle's *gorm.Config is also that of a handle that was opened later, whose pool it holds: give each gorm.Open a gorm.Config of its own")
	}
	if db.Plugins == nil {
		db.Plugins = map[string]gorm.Plugin{}
	}
	db.Plugins[capture.HooksName] = hooks{p}
	p.wrapPool(db, inserter)
	if err := p.register(db); err != nil {
		return fmt.Errorf("gormplugin: register callbacks: %w", err)
	}
	return nil
}

// sharesConfig reports whether another handle was opened with the same *gorm.Config, which GORM keeps: its
// pool is that of the other one then.
func sharesConfig(db *gorm.DB) bool {
	if db.Statement == nil {
		return false
	}
	own, ok := db.Statement.ConnPool.(*sql.DB)
	other, also := db.ConnPool.(*sql.DB)
	return ok && also && own != other
}

// check reports everything that is wrong with the catalog and the routing.
func (p *Plugin) check() error { return p.routing.CheckEvents(p.events, p.log) }

func (p *Plugin) externalNames() []string {
	names := make([]string, len(p.routing.External))
	for i := range p.routing.External {
		names[i] = p.routing.External[i].Broker
	}
	return names
}

// inserter returns the statements for one kind of database.
func (p *Plugin) inserter(dialect outbox.Dialect) (*outbox.Inserter, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if inserter := p.inserters[dialect]; inserter != nil {
		return inserter, nil
	}
	inserter, err := outbox.NewInserter(dialect, p.routing.Table)
	if err == nil {
		p.inserters[dialect] = inserter
	}
	return inserter, err
}

// EventsLeftPending counts the events that commits have left behind on aggregates they touched,
// each with a warning in the log; see [WithStrict].
func (p *Plugin) EventsLeftPending() int64 { return p.left.Load() }

// EventsRaisedAgain counts the events that were undone by a rollback and not sent, since commits have sent
// others that were raised in their place, with their message ids: each with a warning in the log.
func (p *Plugin) EventsRaisedAgain() int64 { return p.again.Load() }
