package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/signature"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// An Engine runs one processor for each pair of database and broker. While it runs, it enters this
// process in the list of instances of each database whose store is a [Registry], and warns of rows
// for brokers that it does not have in each whose store is an [Inspector], and of what slows it
// down in each whose store is a [Watcher].
type Engine struct {
	processors   []*Processor
	presences    []*heartbeat
	unconfigured []*unconfigured
	watches      []*watch
	sentinels    []*sentinel
	listeners    []*listener
	clocks       []*clock
	id           uuid.UUID
	isolation    *crashIsolation
}

// EngineConfig is what an engine needs.
type EngineConfig struct {
	// Stores by the database's name.
	Stores map[string]driver.Delivery
	// Brokers by name.
	Brokers map[string]Target
	// Listen names the databases on which relays listen for the commits of other processes. Their
	// stores must be a [driver.Listener]. Default: none; polling finds the rows of other processes.
	Listen []string
	// Log gets what an operator must know. Default: slog.Default().
	Log *slog.Logger
	// Observer sees what the processors do. Default: none.
	Observer Observer
	// Name of this process in the list of instances. It need not be unique. Default: the host's
	// name.
	Name string
	// Version of the program, for the same list; may be empty.
	Version string
	// Beside is an engine of the same process, which then counts as the same relay: in the lists of
	// instances it has the same id, and a message that may have crashed the process is claimed alone
	// among the workers of both. Default: none.
	Beside *Engine
}

// Target is a broker with its policy.
type Target struct {
	Broker brokers.Broker
	Policy outbox.Policy
	// Sign signs each message as it is sent; nil: messages are not signed.
	Sign *signature.Keys
}

// NewEngine makes the processors; all problems are reported in one error.
func NewEngine(cfg EngineConfig) (*Engine, error) {
	if len(cfg.Stores) == 0 || len(cfg.Brokers) == 0 {
		return nil, errors.New("outbox: an engine needs at least one database and one broker")
	}
	engine := Engine{id: uuid.New(), isolation: newCrashIsolation()} // the same in all databases
	if cfg.Beside != nil {
		engine.id, engine.isolation = cfg.Beside.id, cfg.Beside.isolation
	}
	var problems []error
	for _, database := range slices.Sorted(maps.Keys(cfg.Stores)) {
		here := newHeartbeat(cfg.Stores[database], database, cfg, engine.id)
		engine.presences = append(engine.presences, here)
		engine.unconfigured = append(engine.unconfigured, newUnconfigured(cfg.Stores[database], database, cfg))
		engine.watches = append(engine.watches, newWatch(cfg.Stores[database], database, cfg))
		sentinel := newSentinel(cfg.Stores[database], database, cfg)
		engine.sentinels = append(engine.sentinels, sentinel)
		clock := engine.compare(database, cfg)
		listener, err := engine.listen(database, cfg)
		problems = append(problems, err)
		for _, broker := range slices.Sorted(maps.Keys(cfg.Brokers)) {
			processor, err := NewProcessor(ProcessorConfig{
				Database: database, Broker: broker, Store: cfg.Stores[database],
				Target: cfg.Brokers[broker].Broker, Policy: cfg.Brokers[broker].Policy, Sign: cfg.Brokers[broker].Sign,
				Log: cfg.Log, Observer: cfg.Observer,
			})
			if err != nil {
				problems = append(problems, fmt.Errorf("outbox: database %q: %w", database, err))
				continue
			}
			processor.isolation, processor.listener, processor.clock = engine.isolation, listener, clock
			engine.processors = append(engine.processors, processor)
			here.processors = append(here.processors, processor)
			sentinel.processors = append(sentinel.processors, processor)
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return &engine, nil
}

// compare prepares to compare the clock of a database with ours, where an observer is set.
func (e *Engine) compare(database string, cfg EngineConfig) *clock {
	if cfg.Observer == nil {
		return nil
	}
	compared := &clock{store: cfg.Stores[database]}
	e.clocks = append(e.clocks, compared)
	return compared
}

// listen makes the listener of a database if the configuration asks for one.
func (e *Engine) listen(database string, cfg EngineConfig) (*listener, error) {
	if !slices.Contains(cfg.Listen, database) {
		return nil, nil //nolint:nilnil // which is no error
	}
	store, ok := cfg.Stores[database].(driver.Listener)
	if !ok {
		return nil, fmt.Errorf("outbox: database %q: its store cannot listen for notifications: only PostgreSQL's can", database)
	}
	l := &listener{
		store: store, log: cmp.Or(cfg.Log, slog.Default()).With("database", database),
		wake: func(wakeUps ...wakeup.WakeUp) { e.Wake(database, wakeUps...) },
	}
	e.listeners = append(e.listeners, l)
	return l, nil
}

// Run runs all processors until ctx ends and each has finished or released what it had claimed. Run
// an engine once.
func (e *Engine) Run(ctx context.Context) error {
	here, leave := context.WithCancel(context.WithoutCancel(ctx)) // as long as rows are claimed
	defer leave()
	var beside sync.WaitGroup
	for _, heartbeat := range e.presences {
		beside.Go(func() { heartbeat.run(here) })
	}
	for _, unconfigured := range e.unconfigured {
		beside.Go(func() { regularly(ctx, unconfiguredEvery, unconfigured.look) })
	}
	for _, watch := range e.watches {
		beside.Go(func() { regularly(ctx, watchEvery, watch.look) })
	}
	for _, sentinel := range e.sentinels {
		beside.Go(func() { regularly(ctx, sentinelEvery, sentinel.look) })
	}
	for _, clock := range e.clocks {
		beside.Go(func() { regularly(ctx, watchEvery, clock.look) })
	}
	for _, listener := range e.listeners {
		beside.Go(func() { listener.run(ctx) })
	}
	var group errgroup.Group
	for _, processor := range e.processors {
		group.Go(func() error { return processor.Run(ctx) })
	}
	err := group.Wait()
	leave()
	beside.Wait()
	return err
}

// Wake tells the processors of a database about committed rows; without wakeUps, all of them poll
// now. It never blocks. served is true if this engine runs and has a processor for each wake-up, so
// that no other process need be notified.
func (e *Engine) Wake(database string, wakeUps ...wakeup.WakeUp) (served bool) {
	met := 0
	for _, processor := range e.processors {
		if processor.database != database {
			continue
		}
		if len(wakeUps) == 0 {
			processor.Wake(wakeup.Unknown)
			served = served || processor.running.Load()
		}
		for _, wakeUp := range wakeUps {
			if wakeUp.Broker == processor.broker {
				processor.Wake(wakeUp.Shards)
				if processor.running.Load() {
					met++
				}
			}
		}
	}
	return served || len(wakeUps) > 0 && met == len(wakeUps)
}

// Stats returns the counters of every processor, sorted by database and broker.
func (e *Engine) Stats() []Stats {
	stats := make([]Stats, len(e.processors))
	for i, processor := range e.processors {
		stats[i] = processor.Stats()
	}
	return stats
}

// Instance is this process as it stands in the list of instances of each database, without what it
// works on: for whoever looks after a database while the engine does not run.
func (e *Engine) Instance() admin.Instance {
	here := &e.presences[0].instance // of which the heartbeats write the other fields, while the engine runs
	return admin.Instance{ID: here.ID, Name: here.Name, Host: here.Host, PID: here.PID, Version: here.Version}
}
