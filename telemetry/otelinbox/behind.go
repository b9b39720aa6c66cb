package otelinbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// How often inboxes are asked, and how long that may take.
const (
	behindEvery = 30 * time.Second
	behindTime  = 8 * time.Second
)

// WatchBehind lets gauges say how far consumers are behind what was published for them, from outside of
// the consumers: they say so of one that has died, too. It is for the process that knows their inboxes,
// such as "fanout relay" with consumers in its configuration; monitor.Console.Consumers is what to ask.
//
// When metrics are collected, ask is called, at most once in 30 seconds and never by two at a time; its
// context ends after eight seconds. It calls report for each consumer of which it knows: with how long
// ago the first message was published that the consumer has not recorded, or with an error where its
// inbox does not answer. Without a meter provider nothing is asked. Call stop to end it.
func (t *Telemetry) WatchBehind(ask func(ctx context.Context, report func(consumer string, behind time.Duration, err error))) (stop func() error, err error) {
	switch {
	case ask == nil:
		return nil, errors.New("otelinbox: no function to ask how far consumers are behind: pass one")
	case t.meter == nil:
		return func() error { return nil }, nil
	}
	w := &watch{ask: ask}
	registration, err := t.meter.RegisterCallback(func(ctx context.Context, to metric.Observer) error {
		for _, seen := range w.sample(ctx) {
			here := metric.WithAttributes(seen.consumer)
			if seen.err != nil {
				to.ObserveInt64(t.inboxUp, 0, here)
				continue
			}
			to.ObserveInt64(t.inboxUp, 1, here)
			to.ObserveFloat64(t.behind, seen.behind.Seconds(), here)
		}
		return nil
	}, t.behind, t.inboxUp)
	if err != nil {
		return nil, fmt.Errorf("otelinbox: %w", err)
	}
	return registration.Unregister, nil
}

// sighting is what was said of a consumer.
type sighting struct {
	consumer attribute.KeyValue
	behind   time.Duration
	err      error
}

// watch remembers what was said last.
type watch struct {
	ask func(context.Context, func(string, time.Duration, error))

	mu    sync.Mutex
	asked time.Time
	last  []sighting
}

// sample asks, unless that was done of late. Who comes meanwhile waits for the same answer.
func (w *watch) sample(ctx context.Context) []sighting {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.asked.IsZero() && time.Since(w.asked) < behindEvery {
		return w.last
	}
	w.asked, w.last = time.Now(), nil
	ctx, cancel := context.WithTimeout(ctx, behindTime)
	defer cancel()
	w.ask(ctx, func(consumer string, behind time.Duration, err error) {
		w.last = append(w.last, sighting{AttributeConsumer.String(consumer), behind, err})
	})
	return w.last
}
