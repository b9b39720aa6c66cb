package otelinbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	tracesdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/gorm-fanout/fanout/telemetry/otelinbox"
)

func TestLagIsAskedForNowAndThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reader := sdk.NewManualReader()
		o, err := otelinbox.New(otelinbox.Config{MeterProvider: sdk.NewMeterProvider(sdk.WithReader(reader))})
		require.NoError(t, err)
		asked, hangs := 0, false
		_, err = o.WatchLag("billing", func(ctx context.Context) ([]otelinbox.Lag, error) {
			asked++
			if hangs {
				<-ctx.Done()
				return []otelinbox.Lag{{Source: "a", Waiting: 1}}, ctx.Err()
			}
			return []otelinbox.Lag{
				{Source: "a", Waiting: int64(asked), Pending: 2, Oldest: time.Second},
				{Source: "b", Waiting: otelinbox.Unknown, Pending: otelinbox.Unknown, Oldest: -1},
				{Source: "c"},
			}, nil
		})
		require.NoError(t, err)
		_, err = o.WatchLag("shipping", func(context.Context) ([]otelinbox.Lag, error) { return nil, errors.New("out") })
		require.NoError(t, err)

		want := map[string]float64{
			"fanout.inbox.lag billing a": 1, "fanout.inbox.pending billing a": 2, "fanout.inbox.pending.age billing a": 1,
			"fanout.inbox.lag billing c": 0, "fanout.inbox.pending billing c": 0, "fanout.inbox.pending.age billing c": 0,
			"fanout.inbox.broker.up billing": 1, "fanout.inbox.broker.up shipping": 0,
		}
		values, _ := collect(t, reader)
		assert.Equal(t, want, values, "what is not known is absent")
		time.Sleep(10*time.Second - 1)
		values, _ = collect(t, reader)
		assert.Equal(t, want, values, "as it was")
		assert.Equal(t, 1, asked)
		time.Sleep(time.Nanosecond)
		values, _ = collect(t, reader)
		assert.InDelta(t, 2, values["fanout.inbox.lag billing a"], 0)
		assert.Equal(t, 2, asked)

		time.Sleep(10 * time.Second)
		hangs = true
		began := time.Now()
		values, _ = collect(t, reader)
		assert.Equal(t, 3*time.Second, time.Since(began), "nobody waits longer")
		assert.Equal(t, map[string]float64{"fanout.inbox.broker.up billing": 0, "fanout.inbox.broker.up shipping": 0}, values)
	})
}

func TestLagOfManySourcesIsBounded(t *testing.T) {
	t.Parallel()
	reader := sdk.NewManualReader()
	o, err := otelinbox.New(otelinbox.Config{MeterProvider: sdk.NewMeterProvider(sdk.WithReader(reader))})
	require.NoError(t, err)
	_, err = o.WatchLag("billing", func(context.Context) ([]otelinbox.Lag, error) {
		lags := make([]otelinbox.Lag, 1000)
		for i := range lags {
			lags[i].Source = fmt.Sprint(i)
		}
		return lags, nil
	})
	require.NoError(t, err)
	_, all := collect(t, reader)
	assert.Len(t, all["fanout.inbox.lag"].Data.(metricdata.Gauge[int64]).DataPoints, 100)
}

func TestLagIsNotAskedForWithoutAMeter(t *testing.T) {
	t.Parallel()
	o, err := otelinbox.New(otelinbox.Config{TracerProvider: tracesdk.NewTracerProvider()})
	require.NoError(t, err)
	stop, err := o.WatchLag("billing", func(context.Context) ([]otelinbox.Lag, error) { panic("asked") })
	require.NoError(t, err)
	require.NoError(t, stop())
}
