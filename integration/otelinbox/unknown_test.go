package otelinbox_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	tracesdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/gorm-fanout/fanout/telemetry/otelinbox"
)

// What a consumer skips is counted by type. Producers choose types, so only some have series, which they
// keep: no count goes back.
func TestUnknownTypes(t *testing.T) {
	t.Parallel()
	reader := sdk.NewManualReader()
	o, err := otelinbox.New(otelinbox.Config{MeterProvider: sdk.NewMeterProvider(sdk.WithReader(reader))})
	require.NoError(t, err)
	counts := map[string]int64{}
	stop, err := o.WatchUnknown("billing", func() map[string]int64 { return counts })
	require.NoError(t, err)
	values, _ := collect(t, reader)
	assert.Empty(t, values)

	counts["Ordering.OrderMoved.v1"] = 3
	values, _ = collect(t, reader)
	assert.Equal(t, map[string]float64{"fanout.inbox.messages.unknown billing Ordering.OrderMoved.v1": 3}, values)

	for i := range 40 {
		counts[fmt.Sprintf("Noise.T%02d", i)] = int64(100 - i)
	}
	counts[otelinbox.OtherTypes] = 5 // what the handlers counted together
	values, _ = collect(t, reader)
	require.Len(t, values, 21, "20 types, and the others")
	assert.InDelta(t, 3, values["fanout.inbox.messages.unknown billing Ordering.OrderMoved.v1"], 0)
	assert.InDelta(t, 100, values["fanout.inbox.messages.unknown billing Noise.T00"], 0)
	sum := 0.0
	for _, value := range values {
		sum += value
	}
	assert.InDelta(t, 3+5+40*100-40*39/2, sum, 0, "nothing is missing")

	counts["Noise.T39"] = 1_000_000
	values, _ = collect(t, reader)
	assert.NotContains(t, values, "fanout.inbox.messages.unknown billing Noise.T39", "a series of its own would take the others back")
	require.NoError(t, stop())
	values, _ = collect(t, reader)
	assert.Empty(t, values)

	_, err = o.WatchUnknown("billing", nil)
	require.ErrorContains(t, err, "pass the method Unknown")
	o, err = otelinbox.New(otelinbox.Config{TracerProvider: tracesdk.NewTracerProvider()})
	require.NoError(t, err)
	stop, err = o.WatchUnknown("billing", func() map[string]int64 { panic("asked") })
	require.NoError(t, err)
	require.NoError(t, stop())
}
