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

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/internal/instrument"
)

const (
	// askEvery is the least time between two questions, however often and by whom metrics are
	// collected.
	askEvery = 10 * time.Second
	// askTime bounds one question, so that a broker that hangs does not make the other figures
	// late.
	askTime = 3 * time.Second
	// sourceLimit bounds the series of one consumer.
	sourceLimit = 100
)

// Unknown is a number of messages that the broker does not say.
const Unknown = inbox.UnknownLag

// Lag is how far a consumer is behind at one of its sources.
type Lag = inbox.Lag

// gauges, and a counter, are observed at each collection.
type gauges struct {
	lag, pending, up, inboxUp metric.Int64ObservableGauge
	oldest, behind            metric.Float64ObservableGauge
	unknown                   metric.Int64ObservableCounter
}

func (g *gauges) create(maker *instrument.Maker) {
	g.lag = maker.Gauge("fanout.inbox.lag", "{message}", "Messages that the broker has not delivered to this consumer yet; absent where it does not say.")
	g.pending = maker.Gauge("fanout.inbox.pending", "{message}", "Messages that were delivered and are not confirmed yet.")
	g.up = maker.Gauge("fanout.inbox.broker.up", "{broker}", "1 when the broker last answered how far the consumer is behind, 0 when it did not.")
	g.oldest = maker.SecondsGauge("fanout.inbox.pending.age",
		"How long ago the oldest message that was delivered and is not confirmed was sent to the broker; 0 where there is none.")
	g.behind = maker.SecondsGauge("fanout.inbox.behind",
		"How long ago the first message was published that the consumer has not recorded, of what it takes; 0 where there is none. Seen from outside of it.")
	g.inboxUp = maker.Gauge("fanout.inbox.up", "{inbox}", "1 when the inbox of the consumer last answered, 0 when it did not. Seen from outside of it.")
	g.unknown = maker.Counter("fanout.inbox.messages.unknown", "{message}", "Messages that were skipped since their type has no handler, by type.")
}

// WatchLag lets the gauges of a consumer follow what ask says, until stop is called. Call it once
// for each consumer. When metrics are collected, ask is called, at most once in ten seconds and
// never by two at a time; its context ends after three seconds. While it fails, the gauges are
// absent and fanout.inbox.broker.up is 0. Of more than 100 sources the first are observed. Without
// a meter provider nothing is asked.
//
// For brokers/redisstreams/redisconsumer and brokers/kafka/kafkaconsumer ask is the method Lag of the consumer: see the
// example of the package. How far a subscription of Pub/Sub is behind is a metric of Google Cloud.
func (t *Telemetry) WatchLag(consumer string, ask func(context.Context) ([]Lag, error)) (stop func() error, err error) {
	switch {
	case ask == nil:
		return nil, errors.New("otelinbox: no function to ask for the lag: pass one, such as the consumer's Lag")
	case t.meter == nil:
		return func() error { return nil }, nil
	}
	s := &sampler{ask: ask, consumer: AttributeConsumer.String(strings.Clone(consumer))}
	registration, err := t.meter.RegisterCallback(func(ctx context.Context, to metric.Observer) error {
		t.observe(to, s, s.sample(ctx))
		return nil
	}, t.lag, t.pending, t.up, t.oldest)
	if err != nil {
		return nil, fmt.Errorf("otelinbox: %w", err)
	}
	return registration.Unregister, nil
}

func (g *gauges) observe(to metric.Observer, s *sampler, a answer) {
	var up int64
	if a.err == nil {
		up = 1
	}
	to.ObserveInt64(g.up, up, metric.WithAttributes(s.consumer))
	for i := range a.lags {
		lag := &a.lags[i]
		here := metric.WithAttributes(s.consumer, AttributeSource.String(lag.Source))
		if lag.Waiting >= 0 {
			to.ObserveInt64(g.lag, lag.Waiting, here)
		}
		if lag.Pending >= 0 {
			to.ObserveInt64(g.pending, lag.Pending, here)
		}
		if lag.Oldest >= 0 {
			to.ObserveFloat64(g.oldest, lag.Oldest.Seconds(), here)
		}
	}
}

// sampler remembers how far one consumer was behind.
type sampler struct {
	consumer attribute.KeyValue
	ask      func(context.Context) ([]Lag, error)

	mu    sync.Mutex
	asked time.Time
	last  answer
}

// answer has no lags where there is an error: old figures would look like good ones.
type answer struct {
	lags []Lag
	err  error
}

// sample asks, unless that was done of late. Who comes meanwhile waits for the same answer.
func (s *sampler) sample(ctx context.Context) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked.IsZero() && time.Since(s.asked) < askEvery {
		return s.last
	}
	s.asked = time.Now()
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	lags, err := s.ask(ctx)
	if err != nil {
		s.last = answer{err: err}
		return s.last
	}
	s.last = answer{lags: lags[:min(len(lags), sourceLimit)]}
	return s.last
}
