// Package metrics measures what a relay does, with instruments of OpenTelemetry. It links OpenTelemetry's API only: where the figures go
// is up to the meter provider. Package monitor/prometheus has one to be scraped.
//
// Every instrument carries the attributes database and broker, or database alone where a figure is not about a broker, and nothing that
// grows with the messages. docs/metrics.md lists them.
package metrics

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/gorm-fanout/fanout/internal/instrument"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// Scope is the name of the instrumentation scope.
const Scope = "github.com/gorm-fanout/fanout/monitor/metrics"

// The attributes, which are labels in Prometheus.
const (
	AttributeDatabase = attribute.Key("database")
	AttributeBroker   = attribute.Key("broker")
)

// Metrics are the instruments of one process; make them once. They are an [relay.Observer], and safe for concurrent use.
type Metrics struct {
	meter metric.Meter

	claimed, published, failed, retried, abandoned, released, leasesLost metric.Int64Counter
	sent, purged                                                         metric.Int64Counter
	operation, delivery, claim                                           metric.Float64Histogram
	claimSize, publishSize, attempts                                     metric.Int64Histogram
}

// Buckets of the histograms of sizes.
var sizes = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000}

// New makes the instruments. The error says which of them the provider refuses.
func New(provider metric.MeterProvider) (*Metrics, error) {
	if provider == nil {
		return nil, errors.New("metrics: there is no meter provider: give the one of your OpenTelemetry set-up, or that of monitor/prometheus")
	}
	m := &Metrics{meter: provider.Meter(Scope)}
	maker := &instrument.Maker{Meter: m.meter}
	m.sent = maker.Messages("messaging.client.sent.messages", "Messages that a broker was asked to take, whether it did or not.")
	m.operation = maker.Seconds("messaging.client.operation.duration", "How long a broker took for one call.", instrument.Briefly)
	m.claimed = maker.Messages("fanout.outbox.messages.claimed", "Rows that were claimed.")
	m.published = maker.Messages("fanout.outbox.messages.published", "Messages that the broker has acknowledged.")
	m.failed = maker.Messages("fanout.outbox.messages.failed", "Messages that the broker, or the way to it, has refused.")
	m.retried = maker.Messages("fanout.outbox.messages.retried", "Messages that wait for another attempt after one was spent.")
	m.abandoned = maker.Messages("fanout.outbox.messages.abandoned", "Messages that were given up; an operator may requeue them.")
	m.released = maker.Messages("fanout.outbox.messages.released", "Messages that were given back with no attempt spent.")
	m.purged = maker.Messages("fanout.outbox.messages.purged", "Finished rows that were removed.")
	m.leasesLost = maker.Messages("fanout.outbox.leases.lost", "Rows that belonged to somebody else by the time their outcome was to be written.")
	m.delivery = maker.Seconds("fanout.outbox.delivery.duration", "From the writing of a row to the broker's acknowledgement.", instrument.ForLong)
	m.claim = maker.Seconds("fanout.outbox.claim.duration", "How long the database took for one claim, and the completion that goes with it.", instrument.Briefly)
	m.claimSize = maker.Numbers("fanout.outbox.claim.size", "{message}", "Rows of one claim.", sizes)
	m.publishSize = maker.Numbers("fanout.outbox.publish.size", "{message}", "Messages of one call of a broker.", sizes)
	m.attempts = maker.Numbers("fanout.outbox.message.attempts", "{attempt}", "Attempts that a message took until it was published or abandoned.", instrument.Attempts)
	if err := maker.Err(); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
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
	return &observer{
		Metrics: m, add: []metric.AddOption{here}, record: []metric.RecordOption{here},
		addSent: []metric.AddOption{there}, recordOperation: []metric.RecordOption{there},
	}
}
