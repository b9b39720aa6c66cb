package metrics

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/driver"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// observer is the instruments of one processor. Its options are made once: no message costs an allocation.
type observer struct {
	*Metrics

	add, addSent            []metric.AddOption
	record, recordOperation []metric.RecordOption
}

// Claimed implements relay.ProcessorObserver.
func (o *observer) Claimed(ctx context.Context, rows int, took time.Duration) {
	o.claimed.Add(ctx, int64(rows), o.add...)
	o.claimSize.Record(ctx, int64(rows), o.record...)
	o.claim.Record(ctx, took.Seconds(), o.record...)
}

// Publishing implements relay.ProcessorObserver.
func (o *observer) Publishing(ctx context.Context, _ *relay.Call) context.Context { return ctx }

// Published implements relay.ProcessorObserver.
func (o *observer) Published(ctx context.Context, call *relay.Call) {
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

// Completing implements relay.ProcessorObserver. All counters are added to, be it 0: a series that appears only with its first event
// hides that event from increase().
func (o *observer) Completing(ctx context.Context, completion *driver.Completion) {
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
func (o *observer) LeaseLost(ctx context.Context, rows int) {
	o.leasesLost.Add(ctx, int64(rows), o.add...)
}
