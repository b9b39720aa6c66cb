package fanout

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/gorm-fanout/fanout/cleanup"
	"github.com/gorm-fanout/fanout/monitor/metrics"
	"github.com/gorm-fanout/fanout/monitor/tracing"
	"github.com/gorm-fanout/fanout/outbox"
)

// WithMeterProvider measures what the relay does: see docs/metrics.md. Package monitor/prometheus has a provider that Prometheus can scrape.
// Default: nothing is measured, not even with OpenTelemetry's global provider.
func WithMeterProvider(provider metric.MeterProvider) Option {
	return func(o *options) { o.meters, o.measured = provider, true }
}

// WithTracerProvider draws spans of what the relay publishes, linked with those of the producers: see package monitor/tracing. Default: none
// are drawn. Messages carry the trace context of their producer in any case.
func WithTracerProvider(provider trace.TracerProvider) Option {
	return func(o *options) { o.tracers, o.traced = provider, true }
}

// observe makes what looks at the processors; nil where nobody asked for it.
func (r *Relay) observe(o *options) (outbox.Observer, error) {
	var (
		list     []outbox.Observer
		problems []error
	)
	if o.measured {
		var err error
		if r.metrics, err = metrics.New(o.meters); err != nil {
			problems = append(problems, fmt.Errorf("fanout: WithMeterProvider: %w", err))
		} else {
			list = append(list, r.metrics)
		}
	}
	if o.traced {
		tracer, err := tracing.New(o.tracers, tracing.Config{})
		if err != nil {
			problems = append(problems, fmt.Errorf("fanout: WithTracerProvider: %w", err))
		} else {
			list = append(list, tracer)
		}
	}
	return outbox.Observers(list...), errors.Join(problems...)
}

// watch lets the gauges follow the relay until it is closed.
func (r *Relay) watch() error {
	if r.metrics == nil {
		return nil
	}
	browsers := make(map[string]outbox.Browser, len(r.stores))
	for name, store := range r.stores {
		browsers[name] = store
	}
	stop, err := r.metrics.Watch(metrics.Sources{Stats: r.engine.Stats, Databases: browsers, Brokers: r.cfg.BrokerNames(), Log: r.log})
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
