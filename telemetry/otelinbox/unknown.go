package otelinbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// AttributeType is the wire type of messages without a handler; [OtherTypes] for those that are
// counted together.
const AttributeType = attribute.Key("type")

// OtherTypes is the type under which further types are counted together.
const OtherTypes = "(others)"

// typeLimit bounds the series of one consumer: producers choose the types.
const typeLimit = 20

// WatchUnknown counts the messages of a consumer that were skipped since their type has no handler, by
// type, until stop is called: fanout.inbox.messages.unknown. unknown is the method Unknown of the
// consumer's inbox.Handlers. Call it once for each consumer. The 20 types with the most messages have
// series of their own, the others one together. Types that are ignored do not count. Without a meter
// provider nothing is asked.
func (t *Telemetry) WatchUnknown(consumer string, unknown func() map[string]int64) (stop func() error, err error) {
	switch {
	case unknown == nil:
		return nil, errors.New("otelinbox: no function that counts unknown types: pass the method Unknown of the consumer's handlers")
	case t.meter == nil:
		return func() error { return nil }, nil
	}
	here := AttributeConsumer.String(strings.Clone(consumer))
	var (
		mu  sync.Mutex
		own = map[string]bool{} // a series that had a name keeps it, so that no count goes back
	)
	registration, err := t.meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		counts, others := unknown(), int64(0)
		mu.Lock()
		defer mu.Unlock()
		for _, name := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
			return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
		}) {
			if name == OtherTypes || !own[name] && len(own) >= typeLimit {
				others += counts[name]
				continue
			}
			own[name] = true
			to.ObserveInt64(t.unknown, counts[name], metric.WithAttributes(here, AttributeType.String(name)))
		}
		if others > 0 {
			to.ObserveInt64(t.unknown, others, metric.WithAttributes(here, AttributeType.String(OtherTypes)))
		}
		return nil
	}, t.unknown)
	if err != nil {
		return nil, fmt.Errorf("otelinbox: %w", err)
	}
	return registration.Unregister, nil
}
