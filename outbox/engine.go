package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/gorm-fanout/fanout/brokers"
)

// An Engine runs one processor for each pair of database and broker.
type Engine struct {
	processors []*Processor
}

// EngineConfig is what an engine needs.
type EngineConfig struct {
	// Stores by the database's name.
	Stores map[string]Store
	// Brokers by name.
	Brokers map[string]Target
	// Log gets what an operator must know. Default: slog.Default().
	Log *slog.Logger
}

// Target is a broker with its policy.
type Target struct {
	Broker brokers.Broker
	Policy Policy
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
	for _, database := range slices.Sorted(maps.Keys(cfg.Stores)) {
		for _, broker := range slices.Sorted(maps.Keys(cfg.Brokers)) {
			processor, err := NewProcessor(ProcessorConfig{
				Database: database, Broker: broker, Store: cfg.Stores[database],
				Target: cfg.Brokers[broker].Broker, Policy: cfg.Brokers[broker].Policy, Log: cfg.Log,
			})
			if err != nil {
				problems = append(problems, fmt.Errorf("outbox: database %q: %w", database, err))
			}
			engine.processors = append(engine.processors, processor)
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return &engine, nil
}

// Run runs all processors until ctx ends and each has finished or released what it had in hand.
func (e *Engine) Run(ctx context.Context) error {
	var group errgroup.Group
	for _, processor := range e.processors {
		group.Go(func() error { return processor.Run(ctx) })
	}
	return group.Wait()
}

// Wake makes the processors of the named brokers look for rows now; without names, all processors of the database.
// It never blocks.
func (e *Engine) Wake(database string, brokers ...string) {
	for _, processor := range e.processors {
		if processor.database == database && (len(brokers) == 0 || slices.Contains(brokers, processor.broker)) {
			processor.Wake()
		}
	}
}

// Stats returns the counters of every processor, sorted by database and broker.
func (e *Engine) Stats() []Stats {
	stats := make([]Stats, len(e.processors))
	for i, processor := range e.processors {
		stats[i] = processor.Stats()
	}
	return stats
}
