// Package prometheus lets Prometheus scrape a relay. It is a package of its own, so that only
// its users link the exporter:
//
//	exporter, err := prometheus.New()
//	relay, err := fanout.Open(ctx, cfg, fanout.WithMeterProvider(exporter))
//	mux.Handle("GET /metrics", exporter)
//
// Names follow OpenTelemetry's rules for Prometheus: fanout.outbox.messages.published becomes
// fanout_outbox_messages_published_total. docs/metrics.md lists them, and deploy/ has alert rules
// and a dashboard for them.
package prometheus

import (
	"context"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
)

// An Exporter is a meter provider whose figures it serves as text, in Prometheus' format or in
// OpenMetrics, with those of the Go runtime and of the process beside them. It is safe for
// concurrent use.
type Exporter struct {
	metric.MeterProvider

	provider *sdk.MeterProvider
	handler  http.Handler
}

// New makes an exporter with a registry of its own.
func New() (*Exporter, error) {
	registry := prometheus.NewRegistry()
	reader, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo())
	if err != nil {
		return nil, fmt.Errorf("prometheus: %w", err)
	}
	for _, collector := range []prometheus.Collector{collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := registry.Register(collector); err != nil {
			return nil, fmt.Errorf("prometheus: %w", err)
		}
	}
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	return &Exporter{
		MeterProvider: provider, provider: provider,
		handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true, MaxRequestsInFlight: 4}),
	}, nil
}

// ServeHTTP answers a scrape. A fifth one at a time is refused, with status 503.
func (e *Exporter) ServeHTTP(w http.ResponseWriter, r *http.Request) { e.handler.ServeHTTP(w, r) }

// Shutdown ends the collection; scrapes are answered without the relay's figures from then on.
func (e *Exporter) Shutdown(ctx context.Context) error { return e.provider.Shutdown(ctx) }
