package otelinbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/goleak"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/integration/internal/metrictest"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/telemetry/otelinbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// raised is a message of the consumer "billing" from "orders", raised so long ago.
func raised(age time.Duration) *inbox.Message {
	e := &envelope.Message{}
	e.Metadata.Headers = envelope.Headers{ID: uuid.New(), Type: "Ordering.OrderPlaced.v1", Stream: "ordering.order-1", Time: time.Now().Add(-age)}
	e.Metadata.Domain.CorrelationID = "checkout-1"
	return &inbox.Message{
		Consumer: "billing", Source: "orders", Key: e.Metadata.Headers.ID, ID: e.Metadata.Headers.ID.String(), Type: e.Metadata.Headers.Type,
		Format: envelope.FormatInternal, OrderingKey: e.Metadata.Headers.Stream, Envelope: e, Deliveries: 1,
	}
}

// answers is a handler that gives these answers, one after the other.
func answers(all ...any) inbox.HandlerFunc {
	n := -1
	return func(context.Context, *inbox.Message) (inbox.Outcome, error) {
		n++
		switch answer := all[n].(type) {
		case inbox.Outcome:
			return answer, nil
		case error:
			return "", answer
		default:
			panic(answer)
		}
	}
}

// attempts runs a message through a runner until it is done or abandoned.
func attempts(t *testing.T, o inbox.Observer, m *inbox.Message, handler inbox.Handler) {
	t.Helper()
	runner := &inbox.Runner{Handler: handler, Observer: o, Retry: inbox.Retry{MaxAttempts: 3}, Log: slog.New(slog.DiscardHandler)}
	var past inbox.Past
	for {
		a := runner.Attempt(t.Context(), m, past)
		if a.Done() || a.Abandon {
			return
		}
		past = a.Past
	}
}

// collect returns the figures; see metrictest.Collect.
func collect(t *testing.T, reader sdk.Reader) (values map[string]float64, all map[string]metricdata.Metrics) {
	t.Helper()
	return metrictest.Collect(t, reader, otelinbox.Scope, func(name string, set attribute.Set) string { return labels(t, name, set) })
}

// labels checks the attributes: which there are must not depend on messages.
func labels(t *testing.T, name string, set attribute.Set) string {
	t.Helper()
	for _, a := range set.ToSlice() {
		switch a.Key {
		case otelinbox.AttributeConsumer, otelinbox.AttributeSource, otelinbox.AttributeOutcome, otelinbox.AttributeType:
			name += " " + a.Value.String()
		case "messaging.system":
			assert.Equal(t, "fanout", a.Value.String())
			assert.True(t, strings.HasPrefix(name, "messaging."), name)
		case "messaging.operation.name":
			assert.Equal(t, "process", a.Value.String())
		default:
			t.Errorf("%s has the attribute %s", name, a.Key)
		}
	}
	return name
}

func TestEveryInstrument(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reader := sdk.NewManualReader()
		o, err := otelinbox.New(otelinbox.Config{MeterProvider: sdk.NewMeterProvider(sdk.WithReader(reader))})
		require.NoError(t, err)
		slow := inbox.HandlerFunc(func(context.Context, *inbox.Message) (inbox.Outcome, error) {
			time.Sleep(2 * time.Second) // of the bubble's time
			return inbox.Handled, nil
		})
		broken, out := errors.New("broken"), inbox.Unavailable(errors.New("out"))
		attempts(t, o, raised(time.Minute), slow)                                               // 1 attempt, done in 1
		attempts(t, o, raised(time.Minute), answers(broken, out, out, inbox.Handled))           // 4 attempts, done in 2: what is out does not count
		attempts(t, o, raised(time.Minute), answers(broken, "panic", broken))                   // 3 attempts, abandoned after 3
		attempts(t, o, raised(time.Minute), answers(inbox.Permanent(broken)))                   // 1 attempt, abandoned after 1
		attempts(t, o, raised(time.Minute), answers(inbox.Duplicate))                           // 1, 1
		attempts(t, o, raised(time.Minute), answers(inbox.Skipped))                             // 1, 1
		attempts(t, o, raised(time.Minute), answers(broken, broken, inbox.DeadLettered))        // 3, 3
		attempts(t, o, raised(time.Minute), answers(inbox.Outcome("mine "+uuid.NewString())))   // 1, 1
		attempts(t, o, raised(time.Minute), answers(inbox.Outcome("another"+uuid.NewString()))) // 1, 1
		timeless := raised(0)
		timeless.Envelope.Metadata.Headers.Time = time.Time{}
		attempts(t, o, timeless, answers(inbox.Handled)) // 1, 1, and no age
		o.Forwarded(t.Context(), &inbox.Message{Consumer: "billing", Source: "orders"}, broken)
		o.Forwarded(t.Context(), &inbox.Message{Consumer: "billing", Source: "orders"}, broken)
		o.Overdue(t.Context(), &inbox.Message{Consumer: "billing", Source: "orders"}, time.Minute)
		_, err = o.WatchUnknown("billing", func() map[string]int64 { return map[string]int64{"Renamed.v1": 4} })
		require.NoError(t, err)
		stop, err := o.WatchLag("billing", func(context.Context) ([]otelinbox.Lag, error) {
			return []otelinbox.Lag{{Source: "orders", Waiting: 7, Pending: 3, Oldest: 1500 * time.Millisecond}}, nil
		})
		require.NoError(t, err)
		stopBehind, err := o.WatchBehind(func(_ context.Context, report func(string, time.Duration, error)) {
			report("billing", 90*time.Second, nil)
			report("mail", 0, errors.New("its database is gone"))
		})
		require.NoError(t, err)

		values, all := collect(t, reader)
		assert.Equal(t, map[string]float64{
			"messaging.client.consumed.messages billing orders":       17,
			"messaging.process.duration billing orders":               17,
			"messaging.process.duration billing orders sum":           2,
			"fanout.inbox.messages.done billing handled orders":       3,
			"fanout.inbox.messages.done billing duplicate orders":     1,
			"fanout.inbox.messages.done billing skipped orders":       1,
			"fanout.inbox.messages.done billing dead_lettered orders": 1,
			"fanout.inbox.messages.done billing other orders":         2,
			"fanout.inbox.messages.failed billing orders":             9,
			"fanout.inbox.messages.retried billing orders":            5,
			"fanout.inbox.messages.overdue billing orders":            1,
			"fanout.inbox.messages.abandoned billing orders":          2,
			"fanout.inbox.messages.forwarded billing orders":          2,
			"fanout.inbox.message.age billing orders":                 2,
			"fanout.inbox.message.age billing orders sum":             122,
			"fanout.inbox.message.attempts billing orders":            10,
			"fanout.inbox.message.attempts billing orders sum":        15,
			"fanout.inbox.lag billing orders":                         7,
			"fanout.inbox.pending billing orders":                     3,
			"fanout.inbox.pending.age billing orders":                 1.5,
			"fanout.inbox.broker.up billing":                          1,
			"fanout.inbox.messages.unknown billing Renamed.v1":        4,
			"fanout.inbox.behind billing":                             90,
			"fanout.inbox.up billing":                                 1,
			"fanout.inbox.up mail":                                    0,
		}, values)
		documented(t, all)

		require.NoError(t, stopBehind())
		require.NoError(t, stop())
		_, all = collect(t, reader)
		assert.NotContains(t, all, "fanout.inbox.lag")
	})
}

// documented checks that docs/metrics.md has each instrument of consumers, with its unit and kind,
// and none that there is not.
func documented(t *testing.T, all map[string]metricdata.Metrics) {
	t.Helper()
	text := testenv.Page(t, "metrics.md")
	_, section, ok := strings.Cut(text, "\n## Consumers\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n## ")
	found, want := map[string]string{}, map[string]string{}
	for _, match := range regexp.MustCompile("(?m)^\\| `((?:fanout|messaging)\\.[a-z._]+)` \\| (\\S+) \\| (\\S+) \\|").FindAllStringSubmatch(section, -1) {
		found[match[1]] = match[2] + " " + match[3]
	}
	for name, m := range all {
		kind := "gauge"
		switch m.Data.(type) {
		case metricdata.Sum[int64]:
			kind = "counter"
		case metricdata.Histogram[int64], metricdata.Histogram[float64]:
			kind = "histogram"
		}
		want[name] = m.Unit + " " + kind
	}
	assert.Equal(t, want, found)
}

// Counters are there before their first event, and places do not mix.
func TestCountersBeginAtZero(t *testing.T) {
	t.Parallel()
	reader := sdk.NewManualReader()
	o, err := otelinbox.New(otelinbox.Config{MeterProvider: sdk.NewMeterProvider(sdk.WithReader(reader))})
	require.NoError(t, err)
	attempts(t, o, raised(0), answers(inbox.Handled))
	other := raised(0)
	other.Consumer = "shipping"
	attempts(t, o, other, answers(inbox.Duplicate))
	values, _ := collect(t, reader)
	for _, name := range []string{
		"messages.done %s dead_lettered orders", "messages.done %s skipped orders", "messages.failed %s orders", "messages.retried %s orders",
		"messages.abandoned %s orders", "messages.forwarded %s orders", "messages.overdue %s orders",
	} {
		for _, consumer := range []string{"billing", "shipping"} {
			value, ok := values["fanout.inbox."+fmt.Sprintf(name, consumer)]
			assert.True(t, ok, name)
			assert.Zero(t, value)
		}
	}
	assert.InDelta(t, 1, values["fanout.inbox.messages.done billing handled orders"], 0)
	assert.InDelta(t, 0, values["fanout.inbox.messages.done shipping handled orders"], 0)
	assert.InDelta(t, 1, values["fanout.inbox.messages.done shipping duplicate orders"], 0)
}

func TestWithoutProviders(t *testing.T) {
	t.Parallel()
	_, err := otelinbox.New(otelinbox.Config{})
	require.ErrorContains(t, err, "neither a meter provider nor a tracer provider")
	o, err := otelinbox.New(otelinbox.Config{MeterProvider: noop.NewMeterProvider()})
	require.NoError(t, err)
	ctx := o.Begin(t.Context(), raised(0))
	assert.Equal(t, t.Context(), ctx, "no spans")
	o.End(ctx, &inbox.Attempt{Message: raised(0), Outcome: inbox.Handled})
	_, err = o.WatchLag("billing", nil)
	require.ErrorContains(t, err, "no function to ask")
}

// A message costs no allocation, with the SDK behind the instruments, too.
func TestAllocationsOfAMessage(t *testing.T) { // not parallel, as other tests would be counted too
	testenv.NeedExactAllocations(t)
	o, err := otelinbox.New(otelinbox.Config{MeterProvider: sdk.NewMeterProvider(sdk.WithReader(sdk.NewManualReader()))})
	require.NoError(t, err)
	m := raised(time.Second)
	all := []*inbox.Attempt{
		{Message: m, Outcome: inbox.Handled, Took: time.Millisecond},
		{Message: m, Outcome: inbox.Duplicate, Took: time.Millisecond},
		{Message: m, Err: errors.New("broken"), Past: inbox.Past{Failures: 1}},
		{Message: m, Err: errors.New("broken"), Past: inbox.Past{Failures: 3}, Abandon: true},
	}
	require.Zero(t, testenv.Allocations(100, func() {
		for _, a := range all {
			o.End(o.Begin(t.Context(), m), a)
		}
		o.Forwarded(t.Context(), m, nil)
	}))
}
