package prometheus_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/gorm-fanout/fanout/telemetry/prometheus"
)

func scrape(t *testing.T, exporter http.Handler, accept string) *httptest.ResponseRecorder {
	t.Helper()
	answer := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
	request.Header.Set("Accept", accept)
	exporter.ServeHTTP(answer, request)
	require.Equal(t, http.StatusOK, answer.Code)
	return answer
}

// Two exporters know nothing of each other, and a series has the labels of its instrument and no
// others.
func TestExporter(t *testing.T) {
	t.Parallel()
	exporter, err := prometheus.New()
	require.NoError(t, err)
	other, err := prometheus.New()
	require.NoError(t, err)
	counter, err := exporter.Meter("scope").Int64Counter("some.thing", metric.WithUnit("{message}"))
	require.NoError(t, err)
	counter.Add(t.Context(), 3, metric.WithAttributes(attribute.String("database", "d")))

	answer := scrape(t, exporter, "")
	assert.Contains(t, answer.Body.String(), "\nsome_thing_total{database=\"d\"} 3\n")
	assert.Contains(t, answer.Body.String(), "\ngo_goroutines ")
	assert.Contains(t, answer.Header().Get("Content-Type"), "text/plain")
	answer = scrape(t, exporter, "application/openmetrics-text; version=1.0.0")
	assert.Contains(t, answer.Header().Get("Content-Type"), "application/openmetrics-text")
	assert.Contains(t, answer.Body.String(), "# EOF")
	assert.NotContains(t, scrape(t, other, "").Body.String(), "some_thing")

	require.NoError(t, exporter.Shutdown(t.Context()))
	assert.NotContains(t, scrape(t, exporter, "").Body.String(), "some_thing")
}
