// Package metrictest reads what instruments of OpenTelemetry have measured, for tests.
package metrictest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// Label names a figure by its instrument and attributes, and may check them.
type Label func(name string, set attribute.Set) string

// Collect returns what a reader finds, all of which must be of one instrumentation scope: of a
// counter or gauge its value, of a histogram its count and, with " sum" behind its name, its sum;
// and the instruments.
func Collect(t testing.TB, reader sdk.Reader, scope string, label Label) (values map[string]float64, all map[string]metricdata.Metrics) {
	t.Helper()
	var found metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &found))
	values, all = map[string]float64{}, map[string]metricdata.Metrics{}
	for _, found := range found.ScopeMetrics {
		assert.Equal(t, scope, found.Scope.Name)
		for _, m := range found.Metrics {
			all[m.Name] = m
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				assert.True(t, data.IsMonotonic)
				numbers(values, m.Name, data.DataPoints, label)
			case metricdata.Gauge[int64]:
				numbers(values, m.Name, data.DataPoints, label)
			case metricdata.Gauge[float64]:
				numbers(values, m.Name, data.DataPoints, label)
			case metricdata.Histogram[int64]:
				distributions(values, m.Name, data.DataPoints, label)
			case metricdata.Histogram[float64]:
				distributions(values, m.Name, data.DataPoints, label)
			default:
				t.Errorf("%s is a %T", m.Name, data)
			}
		}
	}
	return values, all
}

func numbers[N int64 | float64](values map[string]float64, name string, points []metricdata.DataPoint[N], label Label) {
	for i := range points {
		values[label(name, points[i].Attributes)] = float64(points[i].Value)
	}
}

func distributions[N int64 | float64](values map[string]float64, name string, points []metricdata.HistogramDataPoint[N], label Label) {
	for i := range points {
		of := label(name, points[i].Attributes)
		values[of], values[of+" sum"] = float64(points[i].Count), float64(points[i].Sum)
	}
}
