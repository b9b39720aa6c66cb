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

	"github.com/gorm-fanout/fanout/outbox"
)

// Scope is the name of the instrumentation scope.
const Scope = "github.com/gorm-fanout/fanout/monitor/metrics"

// The attributes, which are labels in Prometheus.
const (
	AttributeDatabase = attribute.Key("database")
	AttributeBroker   = attribute.Key("broker")
)

// What the semantic conventions require of instruments that are named after them; the same for all.
var conventional = []attribute.KeyValue{
	attribute.String("messaging.system", "fanout"), attribute.String("messaging.operation.name", "publish"),
}

// Metrics are the instruments of one process; make them once. They are an [outbox.Observer], and safe for concurrent use.
type Metrics struct {
	meter metric.Meter

	claimed, published, failed, retried, abandoned, released, leasesLost metric.Int64Counter
	sent, purged                                                         metric.Int64Counter
	operation, delivery, claim                                           metric.Float64Histogram
	claimSize, publishSize, attempts                                     metric.Int64Histogram
}

// Buckets of the histograms.
var (
	briefly  = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	forLong  = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 600, 3600, 86400}
	sizes    = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000}
	attempts = []float64{1, 2, 3, 4, 5, 10, 20}
)

// New makes the instruments. The error says which of them the provider refuses.
func New(provider metric.MeterProvider) (*Metrics, error) {
	if provider == nil {
		return nil, errors.New("metrics: there is no meter provider: give the one of your OpenTelemetry set-up, or that of monitor/prometheus")
	}
	m := &Metrics{meter: provider.Meter(Scope)}
	var problems []error
	counter := func(name, unit, description string) metric.Int64Counter {
		made, err := m.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
		problems = append(problems, err)
		return made
	}
	seconds := func(name, description string, buckets []float64) metric.Float64Histogram {
		made, err := m.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description), metric.WithExplicitBucketBoundaries(buckets...))
		problems = append(problems, err)
		return made
	}
	numbers := func(name, unit, description string, buckets []float64) metric.Int64Histogram {
		made, err := m.meter.Int64Histogram(name, metric.WithUnit(unit), metric.WithDescription(description), metric.WithExplicitBucketBoundaries(buckets...))
		problems = append(problems, err)
		return made
	}
	m.sent = counter("messaging.client.sent.messages", "{message}", "Messages that a broker was asked to take, whether it did or not.")
	m.operation = seconds("messaging.client.operation.duration", "How long a broker took for one call.", briefly)
	m.claimed = counter("fanout.outbox.messages.claimed", "{message}", "Rows that were claimed.")
	m.published = counter("fanout.outbox.messages.published", "{message}", "Messages that the broker has acknowledged.")
	m.failed = counter("fanout.outbox.messages.failed", "{message}", "Messages that the broker, or the way to it, has refused.")
	m.retried = counter("fanout.outbox.messages.retried", "{message}", "Messages that wait for another attempt after one was spent.")
	m.abandoned = counter("fanout.outbox.messages.abandoned", "{message}", "Messages that were given up; an operator may requeue them.")
	m.released = counter("fanout.outbox.messages.released", "{message}", "Messages that were given back with no attempt spent.")
	m.purged = counter("fanout.outbox.messages.purged", "{message}", "Finished rows that were removed.")
	m.leasesLost = counter("fanout.outbox.leases.lost", "{message}", "Rows that belonged to somebody else by the time their outcome was to be written.")
	m.delivery = seconds("fanout.outbox.delivery.duration", "From the writing of a row to the broker's acknowledgement.", forLong)
	m.claim = seconds("fanout.outbox.claim.duration", "How long the database took for one claim, and the completion that goes with it.", briefly)
	m.claimSize = numbers("fanout.outbox.claim.size", "{message}", "Rows of one claim.", sizes)
	m.publishSize = numbers("fanout.outbox.publish.size", "{message}", "Messages of one call of a broker.", sizes)
	m.attempts = numbers("fanout.outbox.message.attempts", "{attempt}", "Attempts that a message took until it was published or abandoned.", attempts)
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return m, nil
}

// Purged counts what a purge of one database has removed.
func (m *Metrics) Purged(ctx context.Context, database string, rows int) {
	m.purged.Add(ctx, int64(rows), metric.WithAttributes(AttributeDatabase.String(database)))
}

// Observe implements outbox.Observer.
func (m *Metrics) Observe(database, broker string) outbox.ProcessorObserver {
	place := []attribute.KeyValue{AttributeDatabase.String(database), AttributeBroker.String(broker)}
	here := metric.WithAttributeSet(attribute.NewSet(place...))
	there := metric.WithAttributeSet(attribute.NewSet(append(place, conventional...)...))
	return &observer{
		Metrics: m, add: []metric.AddOption{here}, record: []metric.RecordOption{here},
		addSent: []metric.AddOption{there}, recordOperation: []metric.RecordOption{there},
	}
}
