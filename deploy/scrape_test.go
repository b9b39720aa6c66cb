package deploy_test

import (
	"context"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"

	"go.opentelemetry.io/otel/metric"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox/admin"
	"github.com/gorm-fanout/fanout/outbox/relay"
	"github.com/gorm-fanout/fanout/telemetry/otelinbox"
	"github.com/gorm-fanout/fanout/telemetry/otelrelay"
	"github.com/gorm-fanout/fanout/telemetry/prometheus"
)

// scraped are the names of all series that the exporter really has, each with the names of its
// labels.
type scraped map[string][]string

// scrape asks an exporter whose instruments have all been used.
func scrape(t *testing.T) scraped {
	t.Helper()
	exporter, err := prometheus.New()
	require.NoError(t, err)
	m, err := otelrelay.NewMetrics(exporter)
	require.NoError(t, err)
	_, err = m.Watch(otelrelay.Sources{
		Stats: func() []relay.Stats {
			return []relay.Stats{{Database: "d", Broker: "b", Listener: relay.ListenerConnected}}
		},
		Databases: map[string]admin.Administration{"d": browser{}},
		More:      func() map[string]admin.Administration { return map[string]admin.Administration{"t": browser{}} },
		Tenants:   func() map[string]int { return map[string]int{"awake": 1} },
	})
	require.NoError(t, err)
	o := m.Observe("d", "b")
	o.Claimed(t.Context(), 1, time.Second)
	o.Published(t.Context(), &relay.Call{Messages: []*driver.Message{{}}, Outgoing: make([]brokers.Message, 1), Results: make([]brokers.Result, 1)})
	o.Completing(t.Context(), &driver.Completion{})
	m.Purged(t.Context(), "d", 1)

	useConsumer(t, exporter)

	answer := httptest.NewRecorder()
	exporter.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	textParser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := textParser.TextToMetricFamilies(answer.Body)
	require.NoError(t, err)
	names := scraped{}
	for name, family := range families {
		var labels []string
		for _, metric := range family.GetMetric() { // those of tenants have a label more
			for _, pair := range metric.GetLabel() {
				if !slices.Contains(labels, pair.GetName()) {
					labels = append(labels, pair.GetName())
				}
			}
		}
		if family.GetMetric()[0].GetHistogram() == nil {
			names[name] = labels
			continue
		}
		names[name+"_sum"], names[name+"_count"], names[name+"_bucket"] = labels, labels, append(slices.Clone(labels), "le")
	}
	require.Contains(t, names, "fanout_outbox_messages_published_total")
	return names
}

// useConsumer uses the instruments of a consumer.
func useConsumer(t *testing.T, provider metric.MeterProvider) {
	t.Helper()
	consumer, err := otelinbox.New(otelinbox.Config{MeterProvider: provider})
	require.NoError(t, err)
	_, err = consumer.WatchLag("c", func(context.Context) ([]inbox.Lag, error) { return []inbox.Lag{{Source: "s"}}, nil })
	require.NoError(t, err)
	_, err = consumer.WatchBehind(func(_ context.Context, report func(string, time.Duration, error)) { report("c", time.Second, nil) })
	require.NoError(t, err)
	m := &inbox.Message{Consumer: "c", Source: "s", Envelope: &envelope.Message{}}
	m.Envelope.Metadata.Headers.Time = time.Now()
	for _, outcome := range []inbox.Outcome{inbox.Handled, inbox.DeadLettered} {
		consumer.End(consumer.Begin(t.Context(), m), &inbox.Attempt{Message: m, Outcome: outcome})
	}
	consumer.Forwarded(t.Context(), m, nil)
	_, err = consumer.WatchUnknown("c", func() map[string]int64 { return map[string]int64{"t": 1} })
	require.NoError(t, err)
}

// browser says of one broker that nothing waits.
type browser struct{ admin.Administration }

func (browser) Overview(context.Context, int) ([]admin.BrokerOverview, error) {
	return []admin.BrokerOverview{{Broker: "b"}}, nil
}

// check parses an expression and looks whether its series are there, with the labels by which it
// picks and groups them. Prometheus itself adds the label job.
func (s scraped) check(t *testing.T, text string) {
	t.Helper()
	expression, err := parser.ParseExpr(text)
	require.NoError(t, err, text)
	selectors := 0
	parser.Inspect(expression, func(node parser.Node, path []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		selectors++
		labels, ok := s[selector.Name]
		require.True(t, ok, "%s: there is no series %s: the exporter has %s", text, selector.Name, s)
		for _, matcher := range selector.LabelMatchers {
			if matcher.Name != "__name__" {
				require.Contains(t, labels, matcher.Name, "%s: %s", text, selector.Name)
			}
		}
		for _, parent := range path {
			if aggregate, ok := parent.(*parser.AggregateExpr); ok {
				require.False(t, aggregate.Without, text)
				require.Subset(t, append([]string{"job"}, labels...), aggregate.Grouping, "%s: %s", text, selector.Name)
			}
		}
		return nil
	})
	require.NotZero(t, selectors, text)
}

func (s scraped) String() string {
	var names []string
	for name := range s {
		if strings.HasPrefix(name, "fanout") || strings.HasPrefix(name, "messaging") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}
