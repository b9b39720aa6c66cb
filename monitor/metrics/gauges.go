package metrics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"go.opentelemetry.io/otel/metric"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// Sources are what gauges are read from when somebody collects.
type Sources struct {
	// Stats returns those of the processors, such as relay.Engine.Stats does. Nil: there are none.
	Stats func() []relay.Stats
	// Databases are asked where their brokers stand, no more than once in ten seconds, one question of each at a time.
	Databases map[string]admin.Administration
	// Brokers of the configuration: they always have their figures. Of others that have rows in a database the first 20 by name have
	// theirs, and the rest are summed up as [OtherBrokers]. Default: none is configured.
	Brokers []string
	// Log is told when brokers are summed up. Default: slog.Default().
	Log *slog.Logger
}

// gauges are observed when somebody collects.
type gauges struct {
	pending, processing, failed, abandoned, leases, breaker, destinations, paused, listener, up metric.Int64ObservableGauge
	oldest, lag                                                                                 metric.Float64ObservableGauge
}

// Watch lets the gauges follow the sources until stop is called. Call it once in a process, unless the databases are others: each call
// asks them by itself.
func (m *Metrics) Watch(sources Sources) (stop func() error, err error) {
	var (
		g        gauges
		all      []metric.Observable
		problems []error
	)
	gauge := func(name, unit, description string) metric.Int64ObservableGauge {
		made, err := m.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
		all, problems = append(all, made), append(problems, err)
		return made
	}
	seconds := func(name, description string) metric.Float64ObservableGauge {
		made, err := m.meter.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(description))
		all, problems = append(all, made), append(problems, err)
		return made
	}
	g.pending = gauge("fanout.outbox.rows.pending", "{message}", "Rows that wait for their first attempt, up to a cap.")
	g.processing = gauge("fanout.outbox.rows.processing", "{message}", "Rows under a lease, up to a cap.")
	g.failed = gauge("fanout.outbox.rows.failed", "{message}", "Rows that wait for another attempt, up to a cap.")
	g.abandoned = gauge("fanout.outbox.rows.abandoned", "{message}", "Rows that were given up and are still there, up to a cap.")
	g.oldest = seconds("fanout.outbox.oldest.age", "Age of the oldest row that is not finished; 0 where there is none.")
	g.lag = seconds("fanout.outbox.lag", "How long the first rows that could be claimed have been waiting.")
	g.up = gauge("fanout.outbox.database.up", "{database}", "1 when the database last answered how its brokers stand, 0 when it did not.")
	g.leases = gauge("fanout.outbox.leases.active", "{batch}", "Batches that this process has claimed.")
	g.breaker = gauge("fanout.outbox.breaker.state", "{state}", "0 closed: messages are sent; 1 half-open: a few are, to try; 2 open: none is.")
	g.destinations = gauge("fanout.outbox.destinations.unavailable", "{destination}", "Streams or topics of a broker that messages wait for.")
	g.paused = gauge("fanout.outbox.broker.paused", "{broker}", "1 while an operator has paused the broker.")
	g.listener = gauge("fanout.outbox.listener.up", "{listener}",
		"1 while this process hears of the commits of others, 0 while it finds them by polling; absent where it does not listen.")
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	samplers := make([]*sampler, 0, len(sources.Databases))
	for name, browser := range sources.Databases {
		samplers = append(samplers, &sampler{database: name, browser: browser, configured: sources.Brokers, log: cmp.Or(sources.Log, slog.Default())})
	}
	registration, err := m.meter.RegisterCallback(func(ctx context.Context, to metric.Observer) error {
		if sources.Stats != nil {
			for _, stats := range sources.Stats() {
				g.observeStats(to, &stats)
			}
		}
		sampleAll(ctx, samplers)
		for _, s := range samplers {
			g.observeSample(to, s)
		}
		return nil
	}, all...)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return registration.Unregister, nil
}

func (g *gauges) observeStats(to metric.Observer, stats *relay.Stats) {
	here := metric.WithAttributes(AttributeDatabase.String(stats.Database), AttributeBroker.String(stats.Broker))
	to.ObserveInt64(g.leases, int64(stats.Leases), here)
	to.ObserveInt64(g.breaker, levelOf(stats.Breaker), here)
	to.ObserveInt64(g.destinations, int64(len(stats.UnavailableDestinations)), here)
	to.ObserveInt64(g.paused, yes(stats.Paused), here)
	if stats.Listener != relay.ListenerOff {
		to.ObserveInt64(g.listener, yes(stats.Listener == relay.ListenerConnected), here)
	}
}

func (g *gauges) observeSample(to metric.Observer, s *sampler) {
	brokers, ok := s.last()
	to.ObserveInt64(g.up, yes(ok), metric.WithAttributes(AttributeDatabase.String(s.database)))
	for i := range brokers {
		b := &brokers[i]
		here := metric.WithAttributes(AttributeDatabase.String(s.database), AttributeBroker.String(b.Broker))
		to.ObserveInt64(g.pending, b.Counts[outbox.StatusPending].N, here)
		to.ObserveInt64(g.processing, b.Counts[outbox.StatusProcessing].N, here)
		to.ObserveInt64(g.failed, b.Counts[outbox.StatusFailed].N, here)
		to.ObserveInt64(g.abandoned, b.Counts[outbox.StatusAbandoned].N, here)
		to.ObserveFloat64(g.oldest, b.OldestPending.Seconds(), here)
		to.ObserveFloat64(g.lag, b.Lag.Seconds(), here)
	}
}

// levelOf grows with how little is sent.
func levelOf(state relay.BreakerState) int64 {
	switch state {
	case relay.BreakerOpen:
		return 2
	case relay.BreakerHalfOpen:
		return 1
	case relay.BreakerClosed:
	}
	return 0
}

func yes(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
