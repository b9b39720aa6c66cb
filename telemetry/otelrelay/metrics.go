package otelrelay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/instrument"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// The attributes, which are labels in Prometheus.
const (
	AttributeDatabase = attribute.Key("database")
	AttributeBroker   = attribute.Key("broker")
)

// Metrics are the instruments of one process; make them once. They implement [relay.Observer] and
// are safe for concurrent use.
type Metrics struct {
	meter metric.Meter

	claimed, published, failed, retried, abandoned, released, leasesLost metric.Int64Counter
	sent, purged                                                         metric.Int64Counter
	operation, delivery, claim                                           metric.Float64Histogram
	claimSize, publishSize, attempts                                     metric.Int64Histogram
}

// Buckets of the histograms of sizes.
var sizes = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000}

// NewMetrics makes the instruments. The error says which of them the provider refuses.
func NewMetrics(provider metric.MeterProvider) (*Metrics, error) {
	if provider == nil {
		return nil, errors.New("otelrelay: no meter provider: pass the one of your OpenTelemetry set-up, or one of telemetry/prometheus")
	}
	m := &Metrics{meter: provider.Meter(Scope)}
	maker := &instrument.Maker{Meter: m.meter}
	m.sent = maker.Messages("messaging.client.sent.messages", "Messages that were sent to a broker, acknowledged or not.")
	m.operation = maker.Seconds("messaging.client.operation.duration", "How long a broker took for one call.", instrument.Briefly)
	m.claimed = maker.Messages("fanout.outbox.messages.claimed", "Rows that were claimed.")
	m.published = maker.Messages("fanout.outbox.messages.published", "Messages that the broker has acknowledged.")
	m.failed = maker.Messages("fanout.outbox.messages.failed", "Messages that the broker refused, or that did not reach it.")
	m.retried = maker.Messages("fanout.outbox.messages.retried", "Messages that wait for another attempt after one was spent.")
	m.abandoned = maker.Messages("fanout.outbox.messages.abandoned", "Messages that were abandoned; an operator may requeue them.")
	m.released = maker.Messages("fanout.outbox.messages.released", "Messages that were released with no attempt spent.")
	m.purged = maker.Messages("fanout.outbox.messages.purged", "Finished rows that were removed.")
	m.leasesLost = maker.Messages("fanout.outbox.leases.lost", "Rows whose lease another worker held when their outcome was to be written.")
	m.delivery = maker.Seconds("fanout.outbox.delivery.duration", "From the writing of a row to the broker's acknowledgement.", instrument.ForLong)
	m.claim = maker.Seconds("fanout.outbox.claim.duration", "How long the database took for one claim, and the completion that goes with it.", instrument.Briefly)
	m.claimSize = maker.Numbers("fanout.outbox.claim.size", "{message}", "Rows of one claim.", sizes)
	m.publishSize = maker.Numbers("fanout.outbox.publish.size", "{message}", "Messages of one call of a broker.", sizes)
	m.attempts = maker.Numbers("fanout.outbox.message.attempts", "{attempt}", "Attempts that a message took until it was published or abandoned.", instrument.Attempts)
	if err := maker.Err(); err != nil {
		return nil, fmt.Errorf("otelrelay: %w", err)
	}
	return m, nil
}

// Purged counts what a purge of one database has removed.
func (m *Metrics) Purged(ctx context.Context, database string, rows int) {
	m.purged.Add(ctx, int64(rows), metric.WithAttributes(AttributeDatabase.String(database)))
}

// Observe implements relay.Observer.
func (m *Metrics) Observe(database, broker string) relay.ProcessorObserver {
	place := []attribute.KeyValue{AttributeDatabase.String(database), AttributeBroker.String(broker)}
	here := metric.WithAttributeSet(attribute.NewSet(place...))
	there := metric.WithAttributeSet(attribute.NewSet(append(place, instrument.Conventional("publish")...)...))
	return &metricsObserver{
		Metrics: m, add: []metric.AddOption{here}, record: []metric.RecordOption{here},
		addSent: []metric.AddOption{there}, recordOperation: []metric.RecordOption{there},
	}
}

// metricsObserver has the options of one processor, made once so that no message costs an
// allocation.
type metricsObserver struct {
	*Metrics

	add, addSent            []metric.AddOption
	record, recordOperation []metric.RecordOption
}

// Claimed implements relay.ProcessorObserver.
func (o *metricsObserver) Claimed(ctx context.Context, rows int, took time.Duration) {
	o.claimed.Add(ctx, int64(rows), o.add...)
	o.claimSize.Record(ctx, int64(rows), o.record...)
	o.claim.Record(ctx, took.Seconds(), o.record...)
}

// Publishing implements relay.ProcessorObserver.
func (o *metricsObserver) Publishing(ctx context.Context, _ *relay.Call) context.Context { return ctx }

// Published implements relay.ProcessorObserver.
func (o *metricsObserver) Published(ctx context.Context, call *relay.Call) {
	var sent, published, failed int64
	for i := range call.Results {
		switch class, _ := brokers.Classify(call.Results[i].Err); class {
		case "":
			sent++
			published++
			o.delivery.Record(ctx, call.Age(i).Seconds(), o.record...)
			o.attempts.Record(ctx, int64(call.Messages[i].Attempts)+1, o.record...)
		case brokers.ClassNotSent:
		default:
			sent++
			failed++
		}
	}
	o.operation.Record(ctx, call.Took.Seconds(), o.recordOperation...)
	o.publishSize.Record(ctx, int64(len(call.Messages)), o.record...)
	o.sent.Add(ctx, sent, o.addSent...)
	o.published.Add(ctx, published, o.add...)
	o.failed.Add(ctx, failed, o.add...)
}

// Completing implements relay.ProcessorObserver. It adds to all counters, also 0: increase() does
// not see the first event of a series that begins with it.
func (o *metricsObserver) Completing(ctx context.Context, completion *driver.Completion) {
	var retried, abandoned, released int64
	for i := range completion.Other {
		switch outcome := &completion.Other[i]; {
		case outcome.Status == outbox.StatusAbandoned:
			abandoned++
			o.attempts.Record(ctx, int64(outcome.Attempts), o.record...)
		case outcome.Spent:
			retried++
		default:
			released++
		}
	}
	o.retried.Add(ctx, retried, o.add...)
	o.abandoned.Add(ctx, abandoned, o.add...)
	o.released.Add(ctx, released, o.add...)
	o.leasesLost.Add(ctx, 0, o.add...)
}

// LeaseLost implements relay.ProcessorObserver.
func (o *metricsObserver) LeaseLost(ctx context.Context, rows int) {
	o.leasesLost.Add(ctx, int64(rows), o.add...)
}
