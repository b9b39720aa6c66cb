package fanout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/cleanup"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/internal/capture"
	"github.com/gorm-fanout/fanout/internal/failure"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/tenants"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// WithTenants lists databases that come and go while the relay runs, beside those of the
// configuration: a database for each tenant, by its name. list is called again and again, see
// config.Tenants, and returns all of them: one that it no longer returns is closed, and one whose
// settings differ is closed and opened. An entry without a driver takes the settings of the section
// "tenants". After an error, and a panic, all stays as it is. list must return when ctx ends, as the end
// of Run waits for it. The handles of [WithDB] and the writers of [WithWriter] may have the names of
// tenants; others are connected while the relay runs: [Relay.ConnectDB], [Relay.ConnectWriter]. It
// excludes a file in the configuration.
func WithTenants(list func(ctx context.Context) (map[string]config.Database, error)) Option {
	return func(o *options) { o.tenants = list }
}

// Tenants asks the file, or the function of [WithTenants], once which tenants there are, for tools. Those
// that are found are returned beside an error, which names the entries that are wrong. Where no tenants
// are configured it returns none. Of the options, WithTenants counts.
func Tenants(ctx context.Context, cfg *config.Config, opts ...Option) (map[string]config.Database, error) {
	list, err := tenantSource(cfg, gather(opts))
	if list == nil {
		return nil, err
	}
	listing, err := list(ctx)
	problems := []error{err}
	for _, name := range slices.Sorted(maps.Keys(listing.Refused)) {
		problems = append(problems, fmt.Errorf("fanout: tenant %q: %w", name, listing.Refused[name]))
	}
	return listing.Tenants, errors.Join(problems...)
}

// lister says which tenants there are.
type lister func(ctx context.Context) (tenants.Listing[config.Database], error)

// tenantSource is nil where there are no tenants.
func tenantSource(cfg *config.Config, o *options) (lister, error) {
	switch {
	case o.tenants != nil && cfg.Tenants.File != "":
		return nil, errors.New("fanout: WithTenants: the configuration lists tenants, too: remove tenants.file, or the option")
	case o.tenants == nil && cfg.Tenants.File == "":
		return nil, nil //nolint:nilnil // which is no error
	}
	return func(ctx context.Context) (list tenants.Listing[config.Database], err error) {
		if o.tenants == nil {
			list.Tenants, list.Refused, err = cfg.ReadTenants()
			hold(list.Tenants, list.Refused)
			return list, err
		}
		found, err := o.tenants(ctx)
		if err == nil {
			list.Tenants, list.Refused, err = cfg.CheckTenants(found)
		}
		return list, err
	}, nil
}

// tenantPool opens, visits and connects the tenants of a relay.
type tenantPool struct {
	*tenants.Supervisor[config.Database]

	relay   *Relay
	cfg     *config.Config
	options *options
	engine  relay.EngineConfig // what those of all tenants have in common

	mu      sync.Mutex
	first   *relay.Engine // the process, in the lists of instances
	handles map[string]*gorm.DB
}

// openTenants prepares the tenants, which are opened while the relay runs; nil where there are none.
func (r *Relay) openTenants(cfg *config.Config, o *options, common relay.EngineConfig) error {
	list, err := tenantSource(cfg, o)
	if list == nil {
		return err
	}
	section := cfg.TenantSettings()
	pool := &tenantPool{relay: r, cfg: cfg, options: o, engine: common, first: r.engine, handles: maps.Clone(o.handles)}
	if pool.first == nil { // it does not run, and is what the process is called in all of them
		silent := common
		silent.Observer = nil
		if pool.first, err = newEngine(silent, "", noDelivery{}, nil); err != nil {
			return err
		}
	}
	pool.Supervisor = tenants.New(tenants.Config[config.Database]{
		List: list, Visit: pool.visit, Open: pool.open,
		Every: section.Every, VisitEvery: section.VisitEvery, IdleAfter: section.IdleAfter, Visits: section.Visits, MaxAwake: section.MaxAwake,
		PurgeEvery: cmp.Or(cfg.Cleanup.Interval, cleanup.DefaultInterval), Log: o.log, Remedy: tenantRemedy,
	})
	r.tenants = pool
	return nil
}

// noDelivery stands for the database of an engine that does not run.
type noDelivery struct{ driver.Delivery }

// Shards implements driver.Delivery.
func (noDelivery) Shards() int { return outbox.Shards }

// tenantRemedy parts the error of a tenant for the log; "" is the list of them. A command in the remedy
// names the tenant.
func tenantRemedy(tenant string, err error) (cause, remedy string) {
	cause, remedy = failure.Split(err)
	if tenant == "" {
		return cause, remedy
	}
	migrate := fmt.Sprintf(`run "fanout migrate --database %s"`, tenant)
	var schema *admin.SchemaError
	switch {
	case remedy != "":
	case errors.As(err, &schema):
		remedy = schema.Remedy
	case errors.Is(err, outbox.ErrSchema), errors.Is(err, fs.ErrNotExist):
		remedy = migrate
	default:
		remedy = fmt.Sprintf(`"fanout status --database %s" asks it; correct its entry, or remove it if its database is gone`, tenant)
	}
	return cause, strings.ReplaceAll(remedy, `run "fanout migrate"`, migrate)
}

func newEngine(common relay.EngineConfig, name string, store driver.Delivery, listen []string) (*relay.Engine, error) {
	common.Stores, common.Listen = map[string]driver.Delivery{name: store}, listen
	return relay.NewEngine(common)
}

// connect opens the store of a tenant.
func (p *tenantPool) connect(ctx context.Context, name string, database config.Database, brief bool) (driver.Store, error) {
	p.mu.Lock()
	handle := p.handles[name]
	p.mu.Unlock()
	return openTenant(ctx, p.cfg, database, handle, brief)
}

// openTenant opens the store of a tenant; a brief one has as few connections as its database allows, which
// come when they are needed.
func openTenant(ctx context.Context, cfg *config.Config, database config.Database, handle *gorm.DB, brief bool) (driver.Store, error) {
	table := cfg.Routing().WithDefaults().Table
	if handle != nil && handle.Name() != string(database.Driver) {
		return nil, fmt.Errorf("the handle that is connected is of driver %s, the tenant's entry says %s", handle.Name(), database.Driver)
	}
	if database.Driver == outbox.SQLite && handle != nil {
		store, err := shareSQLite(ctx, handle, database.DSN.Reveal(), table)
		if err == nil {
			store.Know(cfg.BrokerNames()...)
		}
		return store, err
	}
	if database.Driver == outbox.SQLite {
		dsn, err := existingSQLite(database.DSN.Reveal())
		if err != nil {
			return nil, err
		}
		database.DSN = config.Secret(dsn)
	}
	conns := cfg.TenantSettings().MaxConns
	if brief {
		conns = 1
	}
	if database.Driver == outbox.MySQL || database.Driver == outbox.SQLServer {
		conns = max(conns, 2) // a purge needs a second one beside its lock, and Check refuses a pool without
	}
	store, err := connect(ctx, database, table, conns, brief)
	if err == nil {
		store.Know(cfg.BrokerNames()...)
	}
	return store, err
}

// visitor is the store of a tenant during a visit.
type visitor struct {
	driver.Store

	pool *tenantPool
	name string
}

func (p *tenantPool) visit(ctx context.Context, name string, database config.Database) (tenants.Visitor, error) {
	store, err := p.connect(ctx, name, database, true)
	if err != nil {
		return nil, err
	}
	return &visitor{Store: store, pool: p, name: name}, nil
}

// Check implements tenants.Visitor. It is asked again until it succeeds, and logs nothing before: what is
// wrong is in the error.
func (v *visitor) Check(ctx context.Context) error {
	report, err := examine(ctx, v.name, v.Store, v.pool.options.log)
	if err == nil {
		report()
	}
	return err
}

// Work implements tenants.Visitor.
func (v *visitor) Work(ctx context.Context) (bool, error) {
	return driver.AnyReady(ctx, v.Store, v.pool.cfg.BrokerNames())
}

// Heartbeat implements tenants.Visitor.
func (v *visitor) Heartbeat(ctx context.Context) error {
	return v.Store.Heartbeat(ctx, v.pool.first.Instance())
}

// Leave implements tenants.Visitor.
func (v *visitor) Leave(ctx context.Context) error {
	return v.Store.Leave(ctx, v.pool.first.Instance().ID)
}

// Purge implements tenants.Visitor.
func (v *visitor) Purge(ctx context.Context) {
	cleaning := cleanupConfig(v.pool.cfg, map[string]cleanup.Table{v.name: v.Store}, v.pool.options.log)
	cleaning.OnReport = v.pool.relay.purged
	cleaner, err := cleanup.New(cleaning)
	if err == nil { // else the relay would not have been opened
		_, _ = cleaner.Purge(ctx) // errors are logged
	}
}

// tenantSession is a tenant that is awake.
type tenantSession struct {
	visitor

	engine *relay.Engine
	asked  int64 // how often it was found with claimed rows; only its supervisor asks
}

func (p *tenantPool) open(ctx context.Context, name string, database config.Database) (tenants.Session, error) {
	store, err := p.connect(ctx, name, database, false)
	if err != nil {
		return nil, err
	}
	var listen []string
	if database.Notify {
		listen = []string{name}
	}
	common := p.engine
	common.Beside = p.first
	engine, err := newEngine(common, name, store, listen)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &tenantSession{visitor: visitor{Store: store, pool: p, name: name}, engine: engine}, nil
}

// Run implements tenants.Session.
func (s *tenantSession) Run(ctx context.Context) error { return s.engine.Run(ctx) }

// Wake implements tenants.Session.
func (s *tenantSession) Wake() { s.engine.Wake(s.name) }

// Activity implements tenants.Session. A batch that is on its way is no row that is ready, and something
// to do all the same: to sleep would cut its publish short.
func (s *tenantSession) Activity() (n int64) {
	leases := 0
	for _, stats := range s.engine.Stats() {
		n += stats.Claimed
		leases += stats.Leases
	}
	if leases > 0 {
		s.asked++
	}
	return n + s.asked
}

// wake tells the processors of a tenant about committed rows, or wakes it.
func (p *tenantPool) wake(name string, wakeUps []wakeup.WakeUp) (served bool) {
	if session, ok := p.Session(name); ok {
		return session.(*tenantSession).engine.Wake(name, wakeUps...) //nolint:forcetypeassert // open makes no other
	}
	p.Wake(name)
	return false
}

// stats are the counters of the processors of tenants that are awake.
func (p *tenantPool) stats() (list []relay.Stats) {
	sessions := p.Sessions()
	for _, name := range slices.Sorted(maps.Keys(sessions)) {
		list = append(list, sessions[name].(*tenantSession).engine.Stats()...) //nolint:forcetypeassert // open makes no other
	}
	return list
}

// awake are the tables of tenants that are awake.
func (p *tenantPool) awake() map[string]admin.Administration {
	stores := map[string]admin.Administration{}
	for name, session := range p.Sessions() {
		stores[name] = session.(*tenantSession).Store //nolint:forcetypeassert // open makes no other
	}
	return stores
}

// ConnectDB has the commits of a GORM handle wake a tenant of that name, which may come later, until
// disconnect is called: its rows are delivered at once, though it sleeps. On SQLite the relay uses the
// handle itself, as with [WithDB]; disconnect it before it is closed, after the tenant was removed. It
// is safe for concurrent use.
func (r *Relay) ConnectDB(name string, db *gorm.DB) (disconnect func(), err error) {
	if db == nil {
		return nil, fmt.Errorf("fanout: ConnectDB(%q): the handle is nil: did gorm.Open fail?", name)
	}
	plugin, _ := pluginOf(db)
	source, ok := db.Plugins[capture.HooksName].(wakeup.Source)
	if r.tenants == nil || !ok || plugin == nil {
		return nil, fmt.Errorf("fanout: ConnectDB(%q): it takes a handle with the outbox plugin, and a relay with tenants", name)
	}
	if err := checkRouting(fmt.Sprintf("ConnectDB(%q): its plugin", name), plugin.Routing(), r.cfg); err != nil {
		return nil, err
	}
	pool := r.tenants
	pool.mu.Lock()
	pool.handles[name] = db
	pool.mu.Unlock()
	cancel := source.OnCommit(func(wakeUps []wakeup.WakeUp) bool { return pool.wake(name, wakeUps) })
	return func() {
		cancel()
		pool.mu.Lock()
		defer pool.mu.Unlock()
		if pool.handles[name] == db {
			delete(pool.handles, name)
		}
	}, nil
}

// ConnectWriter is [Relay.ConnectDB] for a writer that uses no GORM.
func (r *Relay) ConnectWriter(name string, w *outbox.Writer) (disconnect func(), err error) {
	if r.tenants == nil || w == nil || w.Dialect() == "" {
		return nil, fmt.Errorf("fanout: ConnectWriter(%q): it takes a writer of outbox.NewWriter, and a relay with tenants", name)
	}
	if err := checkRouting(fmt.Sprintf("ConnectWriter(%q): it", name), w.Routing(), r.cfg); err != nil {
		return nil, err
	}
	return w.OnCommit(func(wakeUps []wakeup.WakeUp) bool { return r.tenants.wake(name, wakeUps) }), nil
}
