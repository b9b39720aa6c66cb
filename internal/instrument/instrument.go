// Package instrument is what the telemetry of relays and that of consumers have in common: how
// instruments are made, their buckets, and the attributes that both give.
package instrument

import (
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Buckets of the histograms: of what takes seconds at most, of what may take a day, and of
// attempts.
var (
	Briefly  = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	ForLong  = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 600, 3600, 86400}
	Attempts = []float64{1, 2, 3, 4, 5, 10, 20}
)

// Attributes of spans on either side.
const (
	MessageID    = attribute.Key("messaging.message.id")
	Conversation = attribute.Key("messaging.message.conversation_id")
	Destination  = attribute.Key("messaging.destination.name")
	Type         = attribute.Key("fanout.type")
	Attempt      = attribute.Key("fanout.attempt")
	ErrorType    = attribute.Key("error.type")
)

// System is the attribute that names this messaging system.
var System = attribute.String("messaging.system", "fanout")

// Operation is the attributes of an operation: its type, of those that the semantic conventions
// know, and its name.
func Operation(kind, name string) []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String("messaging.operation.type", kind), attribute.String("messaging.operation.name", name)}
}

// Conventional is what the semantic conventions require of instruments that are named after them.
func Conventional(operation string) []attribute.KeyValue {
	return []attribute.KeyValue{System, attribute.String("messaging.operation.name", operation)}
}

// A Maker makes instruments; afterwards Err says which of them the provider refuses. It is for one
// goroutine.
type Maker struct {
	Meter    metric.Meter
	gauges   []metric.Observable
	problems []error
}

// Err joins the problems.
func (m *Maker) Err() error { return errors.Join(m.problems...) }

// Messages makes a counter of messages.
func (m *Maker) Messages(name, description string) metric.Int64Counter {
	made, err := m.Meter.Int64Counter(name, metric.WithUnit("{message}"), metric.WithDescription(description))
	m.problems = append(m.problems, err)
	return made
}

// Seconds makes a histogram of times.
func (m *Maker) Seconds(name, description string, buckets []float64) metric.Float64Histogram {
	made, err := m.Meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description), metric.WithExplicitBucketBoundaries(buckets...))
	m.problems = append(m.problems, err)
	return made
}

// Numbers makes a histogram of numbers.
func (m *Maker) Numbers(name, unit, description string, buckets []float64) metric.Int64Histogram {
	made, err := m.Meter.Int64Histogram(name, metric.WithUnit(unit), metric.WithDescription(description), metric.WithExplicitBucketBoundaries(buckets...))
	m.problems = append(m.problems, err)
	return made
}

// Gauge makes a gauge of whole numbers.
func (m *Maker) Gauge(name, unit, description string) metric.Int64ObservableGauge {
	made, err := m.Meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.gauges, m.problems = append(m.gauges, made), append(m.problems, err)
	return made
}

// SecondsGauge makes a gauge of a time.
func (m *Maker) SecondsGauge(name, description string) metric.Float64ObservableGauge {
	made, err := m.Meter.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(description))
	m.gauges, m.problems = append(m.gauges, made), append(m.problems, err)
	return made
}

// Counter makes a counter that is observed.
func (m *Maker) Counter(name, unit, description string) metric.Int64ObservableCounter {
	made, err := m.Meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.problems = append(m.problems, err)
	return made
}

// Gauges returns the gauges made so far, for RegisterCallback.
func (m *Maker) Gauges() []metric.Observable { return m.gauges }
