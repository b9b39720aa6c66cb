// Package otelinbox measures what consumers do and draws spans of it, with OpenTelemetry's API
// only: where figures and spans go is up to the providers.
//
// A [Telemetry] is an [inbox.Observer], to be given to the consumers of brokers/redisstreams/redisconsumer and
// brokers/gcppubsub/pubsubconsumer. Every instrument carries the attributes consumer and source, the stream or
// subscription, and nothing that grows with the messages. docs/metrics.md lists them.
package otelinbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/internal/instrument"
)

// Scope is the name of the instrumentation scope.
const Scope = "github.com/gorm-fanout/fanout/telemetry/otelinbox"

// defaultLinkAfter is the age from which on a message's span is linked with its producer's instead
// of below it.
const defaultLinkAfter = 5 * time.Second

// The attributes of the instruments, which are labels in Prometheus.
const (
	AttributeConsumer = attribute.Key("consumer")
	AttributeSource   = attribute.Key("source")
	// AttributeOutcome is one of [inbox.Handled], [inbox.Duplicate], [inbox.DeadLettered] and
	// [inbox.Skipped]; "other" for what else a handler may have said.
	AttributeOutcome = attribute.Key("outcome")
)

// otherOutcome stands for all outcomes that this package does not know, of which there may be any
// number.
const otherOutcome inbox.Outcome = "other"

// Config of a [Telemetry]. At least one of the providers is needed.
type Config struct {
	// MeterProvider gets the figures; nil for none.
	MeterProvider metric.MeterProvider
	// TracerProvider gets the spans; nil for none.
	TracerProvider trace.TracerProvider
	// LinkAfter is how long after its event was raised the span of a message is no child of its
	// producer's any more. Default 5 s; negative: it never is a child.
	LinkAfter time.Duration
}

// Telemetry is the instruments and the tracer of one process; make it once. It is safe for
// concurrent use.
type Telemetry struct {
	linkAfter time.Duration
	tracer    trace.Tracer // nil for no spans
	meter     metric.Meter // nil for no figures
	instruments
	gauges

	mu     sync.RWMutex
	places map[where]*place
}

var (
	_ inbox.Observer        = (*Telemetry)(nil)
	_ inbox.OverdueObserver = (*Telemetry)(nil)
)

// instruments are written to whenever something happens.
type instruments struct {
	consumed, done, failed, retried, abandoned, forwarded, overdue metric.Int64Counter
	process, age                                                   metric.Float64Histogram
	attempts                                                       metric.Int64Histogram
}

// New makes the instruments. The error says which of them the provider refuses, or that there is no
// provider at all.
func New(cfg Config) (*Telemetry, error) {
	if cfg.MeterProvider == nil && cfg.TracerProvider == nil {
		return nil, errors.New("otelinbox: neither a meter provider nor a tracer provider: pass those of your OpenTelemetry set-up, or leave the observer out")
	}
	t := &Telemetry{linkAfter: cfg.LinkAfter, places: map[where]*place{}}
	if t.linkAfter == 0 {
		t.linkAfter = defaultLinkAfter
	}
	if cfg.TracerProvider != nil {
		t.tracer = cfg.TracerProvider.Tracer(Scope)
	}
	if cfg.MeterProvider == nil {
		return t, nil
	}
	t.meter = cfg.MeterProvider.Meter(Scope)
	maker := &instrument.Maker{Meter: t.meter}
	t.instruments.create(maker)
	t.gauges.create(maker)
	if err := maker.Err(); err != nil {
		return nil, fmt.Errorf("otelinbox: %w", err)
	}
	return t, nil
}

func (i *instruments) create(maker *instrument.Maker) {
	i.consumed = maker.Messages("messaging.client.consumed.messages", "Messages that a handler was given; one that is tried again counts again.")
	i.process = maker.Seconds("messaging.process.duration", "How long a handler took for one attempt, whether it failed or not.", instrument.Briefly)
	i.done = maker.Messages("fanout.inbox.messages.done", "Messages that the consumer is done with, by outcome.")
	i.failed = maker.Messages("fanout.inbox.messages.failed", "Attempts at messages that ended with an error, for whatever reason.")
	i.retried = maker.Messages("fanout.inbox.messages.retried", "Attempts that count against their message, and are followed by another.")
	i.abandoned = maker.Messages("fanout.inbox.messages.abandoned", "Messages whose attempts are used up, or whose error is permanent.")
	i.forwarded = maker.Messages("fanout.inbox.messages.forwarded", "Messages that were forwarded to the dead letters of the broker.")
	i.overdue = maker.Messages("fanout.inbox.messages.overdue", "Attempts whose handler went on although its context had ended.")
	i.age = maker.Seconds("fanout.inbox.message.age", "From the raising of an event to the end of its handling, by the two clocks involved.", instrument.ForLong)
	i.attempts = maker.Numbers("fanout.inbox.message.attempts", "{attempt}", "Attempts that a message took until it was done or abandoned.", instrument.Attempts)
}

// where a message comes from: a consumer and its source. There are as many as the application has
// configured.
type where struct{ consumer, source string }

// place has what each figure and each span of one consumer and source has in common, made once: no
// message costs an allocation.
type place struct {
	add, addConsumed      []metric.AddOption
	record, recordProcess []metric.RecordOption
	outcomes              map[inbox.Outcome][]metric.AddOption
	span                  string
	start                 []trace.SpanStartOption
}

func (t *Telemetry) at(ctx context.Context, m *inbox.Message) *place {
	key := where{m.Consumer, m.Source}
	t.mu.RLock()
	p := t.places[key]
	t.mu.RUnlock()
	if p != nil {
		return p
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if p = t.places[key]; p == nil {
		key = where{strings.Clone(m.Consumer), strings.Clone(m.Source)} // they may be pieces of the whole message
		p = newPlace(key)
		t.places[key] = p
		t.zero(ctx, p)
	}
	return p
}

func newPlace(at where) *place {
	attributes := []attribute.KeyValue{AttributeConsumer.String(at.consumer), AttributeSource.String(at.source)}
	with := func(more ...attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(append(attributes[:2:2], more...)...))
	}
	here, there := with(), with(instrument.Conventional("process")...)
	p := &place{
		add: []metric.AddOption{here}, addConsumed: []metric.AddOption{there},
		record: []metric.RecordOption{here}, recordProcess: []metric.RecordOption{there},
		outcomes: map[inbox.Outcome][]metric.AddOption{}, span: "process " + at.source, start: startOptions(at),
	}
	for _, outcome := range []inbox.Outcome{inbox.Handled, inbox.Duplicate, inbox.DeadLettered, inbox.Skipped, otherOutcome} {
		p.outcomes[outcome] = []metric.AddOption{with(AttributeOutcome.String(string(outcome)))}
	}
	return p
}
