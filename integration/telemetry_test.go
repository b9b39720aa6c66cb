package integration_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/telemetry/prometheus"
	"github.com/gorm-fanout/fanout/uow"
)

type wakeUp struct{ Number int }

// From the application's span through the outbox to the broker: the wire has the producer's trace
// context, the relay's span is a child of the producer's while it comes soon, and linked when it
// comes late. Metrics are scraped beside that.
func TestTelemetry(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "outbox.db") + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)"
	cfg, err := config.Parse([]byte("databases: {main: {driver: sqlite, dsn: 'file:"+file+"'}}\nbrokers: {default: {type: memory}}\n"), "fanout.yaml")
	require.NoError(t, err)
	store, err := fanout.OpenStore(t.Context(), cfg, "main")
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, store.Close())

	events := envelope.NewCatalog("waking")
	envelope.Register[wakeUp](events)
	db, err := gorm.Open(sqlite.Open(file), &gorm.Config{})
	require.NoError(t, err)
	pool, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	require.NoError(t, db.Use(gormplugin.New(events, cfg.Routing())))

	application := sdk.NewTracerProvider().Tracer("application")
	write := func(n int) (traceParent, spanID string) {
		ctx, span := application.Start(t.Context(), "request")
		defer span.End()
		require.NoError(t, db.WithContext(ctx).Transaction(func(tx *gorm.DB) error { return uow.Publish(tx, wakeUp{n}) }))
		s := span.SpanContext()
		return "00-" + s.TraceID().String() + "-" + s.SpanID().String() + "-01", s.SpanID().String()
	}
	lateParent, late := write(1)
	require.NoError(t, db.Exec("UPDATE outbox_messages SET created_at = created_at - 60000000").Error)

	spans, broker := tracetest.NewInMemoryExporter(), memory.New()
	exporter, err := prometheus.New()
	require.NoError(t, err)
	relay, err := fanout.Open(t.Context(), cfg, fanout.WithDB("main", db), fanout.WithBroker("default", broker), fanout.WithLogger(slog.New(slog.DiscardHandler)),
		fanout.WithMeterProvider(exporter), fanout.WithTracerProvider(sdk.NewTracerProvider(sdk.WithSyncer(spans))))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, relay.Run(ctx)) })
	t.Cleanup(func() { stop(); running.Wait() })
	await := func(published int64) {
		t.Helper()
		require.Eventually(t, func() bool { return relay.Stats()[0].Published == published }, 20*time.Second, time.Millisecond)
	}
	await(1)
	soonParent, soon := write(2)
	await(2)

	var wire []string
	for _, destination := range broker.Destinations() {
		for _, m := range broker.Messages(destination) {
			m.Fields(func(name, value string) bool {
				if name == brokers.FieldTraceParent {
					wire = append(wire, value)
				}
				return true
			})
		}
	}
	assert.Equal(t, []string{lateParent, soonParent}, wire, "the wire has the producers' own")

	links, parents, calls := map[string]bool{}, map[string]bool{}, 0
	for _, span := range spans.GetSpans() {
		if span.Name == "publish default" {
			calls++
			continue
		}
		assert.True(t, strings.HasPrefix(span.Name, "send "), span.Name)
		parents[span.Parent.SpanID().String()] = true
		for _, link := range span.Links {
			links[link.SpanContext.SpanID().String()] = true
		}
	}
	assert.Equal(t, 2, calls)
	assert.True(t, parents[soon], "soon: a child")
	assert.False(t, parents[late])
	assert.True(t, links[late], "late: a link")
	assert.False(t, links[soon])

	answer := httptest.NewRecorder()
	require.Eventually(t, func() bool { // the outcome is written after the acknowledgement
		answer = httptest.NewRecorder()
		exporter.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
		return strings.Contains(answer.Body.String(), `fanout_outbox_leases_active{broker="default",database="main"} 0`)
	}, 20*time.Second, time.Millisecond)
	for _, line := range []string{
		`fanout_outbox_messages_published_total{broker="default",database="main"} 2`,
		`fanout_outbox_delivery_duration_seconds_bucket{broker="default",database="main",le="30"} 1`,
		`fanout_outbox_delivery_duration_seconds_bucket{broker="default",database="main",le="300"} 2`,
		`fanout_outbox_breaker_state{broker="default",database="main"} 0`,
		`fanout_outbox_rows_pending{broker="default",database="main"} 0`, `fanout_outbox_database_up{database="main"} 1`,
		"go_goroutines ", "target_info",
	} {
		assert.Contains(t, answer.Body.String(), line)
	}
	require.NoError(t, exporter.Shutdown(t.Context()))
}
