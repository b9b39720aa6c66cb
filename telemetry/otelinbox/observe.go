package otelinbox

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/gorm-fanout/fanout/inbox"
)

// zero lets all counters of a place be seen from the beginning: a series that appears only with its
// first event hides that event from increase(). What a handler may say of its own is no series
// until it does.
func (t *Telemetry) zero(ctx context.Context, p *place) {
	if t.meter == nil {
		return
	}
	t.consumed.Add(ctx, 0, p.addConsumed...)
	for outcome, add := range p.outcomes {
		if outcome != otherOutcome {
			t.done.Add(ctx, 0, add...)
		}
	}
	t.failed.Add(ctx, 0, p.add...)
	t.retried.Add(ctx, 0, p.add...)
	t.abandoned.Add(ctx, 0, p.add...)
	t.forwarded.Add(ctx, 0, p.add...)
	t.overdue.Add(ctx, 0, p.add...)
}

// Begin implements inbox.Observer: it begins the span of the attempt.
func (t *Telemetry) Begin(ctx context.Context, m *inbox.Message) context.Context {
	if t.tracer == nil {
		return ctx
	}
	return t.begin(ctx, m)
}

// End implements inbox.Observer: it counts, measures, and ends the span.
func (t *Telemetry) End(ctx context.Context, a *inbox.Attempt) {
	if t.meter != nil {
		t.measure(ctx, a)
	}
	if span, ok := ctx.Value(spanKey{}).(trace.Span); ok {
		end(span, a)
	}
}

// Forwarded implements inbox.Observer.
func (t *Telemetry) Forwarded(ctx context.Context, m *inbox.Message, _ error) {
	if t.meter != nil {
		t.forwarded.Add(ctx, 1, t.at(ctx, m).add...)
	}
}

// Overdue implements inbox.OverdueObserver.
func (t *Telemetry) Overdue(ctx context.Context, m *inbox.Message, _ time.Duration) {
	if t.meter != nil {
		t.overdue.Add(ctx, 1, t.at(ctx, m).add...)
	}
}

func (t *Telemetry) measure(ctx context.Context, a *inbox.Attempt) {
	m := a.Message
	p := t.at(ctx, m)
	t.consumed.Add(ctx, 1, p.addConsumed...)
	t.process.Record(ctx, a.Took.Seconds(), p.recordProcess...)
	switch {
	case a.Done():
		add, known := p.outcomes[a.Outcome]
		if !known {
			add = p.outcomes[otherOutcome]
		}
		t.done.Add(ctx, 1, add...)
		t.attempts.Record(ctx, int64(a.Failures)+1, p.record...)
		if a.Outcome == inbox.Handled && !m.Envelope.Metadata.Headers.Time.IsZero() {
			t.age.Record(ctx, m.Age(time.Now()).Seconds(), p.record...)
		}
		return
	case a.Abandon:
		t.abandoned.Add(ctx, 1, p.add...)
		t.attempts.Record(ctx, int64(a.Failures), p.record...)
	case counted(a):
		t.retried.Add(ctx, 1, p.add...)
	}
	t.failed.Add(ctx, 1, p.add...)
}

// counted reports whether an attempt that failed counts against its message: the next one starts
// with no setbacks.
func counted(a *inbox.Attempt) bool { return a.Abandon || a.Setbacks == 0 }
