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
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/driver"
)

// An Engine runs one processor for each pair of database and broker. While it runs, it enters this process in the list of
// instances of each database whose store is a [Registry], and warns of rows for brokers that it does not have in each whose
// store is an [Inspector], and of what slows it down in each whose store is a [Watcher].
type Engine struct {
	processors   []*Processor
	presences    []*heartbeat
	unconfigured []*unconfigured
	watches      []*watch
	ears         []*ears
	clocks       []*clock
}

// EngineConfig is what an engine needs.
type EngineConfig struct {
	// Stores by the database's name.
	Stores map[string]driver.Delivery
	// Brokers by name.
	Brokers map[string]Target
	// Listen names the databases whose relays hear of the commits of other processes; their stores must be a [driver.Listener].
	// Default: none; rows of other processes are found by polling.
	Listen []string
	// Log gets what an operator must know. Default: slog.Default().
	Log *slog.Logger
	// Observer sees what the processors do. Default: nobody.
	Observer Observer
	// Name of this process in the list of instances. It need not be unique. Default: the host's name.
	Name string
	// Version of the program, for the same list; may be empty.
	Version string
}

// Target is a broker with its policy.
type Target struct {
	Broker brokers.Broker
	Policy outbox.Policy
}

// NewEngine makes the processors; all problems are reported in one error.
func NewEngine(cfg EngineConfig) (*Engine, error) {
	if len(cfg.Stores) == 0 || len(cfg.Brokers) == 0 {
		return nil, errors.New("outbox: an engine needs at least one database and one broker")
	}
	var (
		engine   Engine
		problems []error
	)
	id, isolation := uuid.New(), newCrashIsolation() // the same in all databases
	for _, database := range slices.Sorted(maps.Keys(cfg.Stores)) {
		here := newHeartbeat(cfg.Stores[database], database, cfg, id)
		engine.presences = append(engine.presences, here)
		engine.unconfigured = append(engine.unconfigured, newUnconfigured(cfg.Stores[database], database, cfg))
		engine.watches = append(engine.watches, newWatch(cfg.Stores[database], database, cfg))
		clock := engine.compare(database, cfg)
		hears, err := engine.listen(database, cfg)
		problems = append(problems, err)
		for _, broker := range slices.Sorted(maps.Keys(cfg.Brokers)) {
			processor, err := NewProcessor(ProcessorConfig{
				Database: database, Broker: broker, Store: cfg.Stores[database],
				Target: cfg.Brokers[broker].Broker, Policy: cfg.Brokers[broker].Policy, Log: cfg.Log,
				Observer: cfg.Observer,
			})
			if err != nil {
				problems = append(problems, fmt.Errorf("outbox: database %q: %w", database, err))
				continue
			}
			processor.isolation, processor.ears, processor.clock = isolation, hears, clock
			engine.processors = append(engine.processors, processor)
			here.processors = append(here.processors, processor)
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return &engine, nil
}

// compare prepares to compare the clock of a database with ours, where somebody observes.
func (e *Engine) compare(database string, cfg EngineConfig) *clock {
	if cfg.Observer == nil {
		return nil
	}
	compared := &clock{store: cfg.Stores[database]}
	e.clocks = append(e.clocks, compared)
	return compared
}

// listen prepares to hear of the commits of other processes, where that is wanted.
func (e *Engine) listen(database string, cfg EngineConfig) (*ears, error) {
	if !slices.Contains(cfg.Listen, database) {
		return nil, nil //nolint:nilnil // which is no error
	}
	listener, ok := cfg.Stores[database].(driver.Listener)
	if !ok {
		return nil, fmt.Errorf("outbox: database %q: its store cannot listen for notifications: only PostgreSQL's can", database)
	}
	hears := &ears{
		listener: listener, log: cmp.Or(cfg.Log, slog.Default()).With("database", database),
		wake: func(arrivals ...outbox.Arrival) { e.Wake(database, arrivals...) },
	}
	e.ears = append(e.ears, hears)
	return hears, nil
}

// Run runs all processors until ctx ends and each has finished or released what it had claimed. Run an engine once.
func (e *Engine) Run(ctx context.Context) error {
	here, leave := context.WithCancel(context.WithoutCancel(ctx)) // as long as there is something in hand
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
	for _, clock := range e.clocks {
		beside.Go(func() { regularly(ctx, watchEvery, clock.look) })
	}
	for _, ears := range e.ears {
		beside.Go(func() { ears.run(ctx) })
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

// Wake tells the processors of a database that rows have come for them; without arrivals, all of them look for rows now. It
// never blocks. served is true when this engine runs and has a processor for each arrival, so that no other process need be told.
func (e *Engine) Wake(database string, arrivals ...outbox.Arrival) (served bool) {
	met := 0
	for _, processor := range e.processors {
		if processor.database != database {
			continue
		}
		if len(arrivals) == 0 {
			processor.Wake(outbox.UnknownShards)
			served = served || processor.running.Load()
		}
		for _, arrival := range arrivals {
			if arrival.Broker == processor.broker {
				processor.Wake(arrival.Shards)
				if processor.running.Load() {
					met++
				}
			}
		}
	}
	return served || len(arrivals) > 0 && met == len(arrivals)
}

// Stats returns the counters of every processor, sorted by database and broker.
func (e *Engine) Stats() []Stats {
	stats := make([]Stats, len(e.processors))
	for i, processor := range e.processors {
		stats[i] = processor.Stats()
	}
	return stats
}
