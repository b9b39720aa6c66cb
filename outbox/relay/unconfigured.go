package relay

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

const (
	// unconfiguredEvery is how often an engine looks for rows of brokers that it does not have.
	unconfiguredEvery = 5 * time.Minute
	// unconfiguredTime bounds one look.
	unconfiguredTime = 30 * time.Second
)

// UnknownBrokers lists the brokers that have open rows and are not among those configured: no
// processor delivers these rows.
func UnknownBrokers(ctx context.Context, table interface {
	Backlog(ctx context.Context) ([]admin.Backlog, error)
}, configured []string,
) ([]string, error) {
	backlog, err := table.Backlog(ctx)
	if err != nil {
		return nil, err
	}
	var unknown []string
	for _, entry := range backlog {
		if !slices.Contains(configured, entry.Broker) {
			unknown = append(unknown, entry.Broker)
		}
	}
	return unknown, nil
}

// unconfigured warns of rows in one database that no processor delivers.
type unconfigured struct {
	store   driver.Delivery
	brokers []string
	log     *slog.Logger
	warned  []string // of these, while they last
}

func newUnconfigured(store driver.Delivery, database string, cfg EngineConfig) *unconfigured {
	return &unconfigured{
		store: store, brokers: slices.Sorted(maps.Keys(cfg.Brokers)),
		log: cmp.Or(cfg.Log, slog.Default()).With("database", database),
	}
}

// regularly looks at once, and again and again until ctx ends.
func regularly(ctx context.Context, every time.Duration, look func(context.Context)) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for ctx.Err() == nil {
		look(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// look warns of each unknown broker once, and again when its rows were gone in between.
func (o *unconfigured) look(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, unconfiguredTime)
	defer cancel()
	unknown, err := UnknownBrokers(bounded, o.store, o.brokers)
	if err != nil {
		if ctx.Err() == nil { // what fails for long, the processors tell
			o.log.DebugContext(ctx, "unconfigured brokers not counted", "error", err)
		}
		return
	}
	for _, broker := range unknown {
		if !slices.Contains(o.warned, broker) {
			o.log.WarnContext(ctx, "rows of an unconfigured broker", "broker", broker,
				"remedy", "add the broker to the configuration, or fanout messages abandon --broker "+broker)
		}
	}
	o.warned = unknown
}
