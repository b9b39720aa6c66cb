package main

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorm-fanout/fanout/outbox"
)

// A library that Pub/Sub links starts a goroutine when it is loaded.
func TestMain(m *testing.M) {
	if code, ok := consumerMain(); ok {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

func TestDemo(t *testing.T) {
	t.Parallel()
	var live bytes.Buffer
	result, err := demonstrate(t.Context(), settings{orders: 60, live: &live})
	require.NoError(t, err)
	assert.Equal(t, 60, result.Orders)
	assert.Equal(t, 150, result.Events, "two events per order, and one more for every second")
	assert.EqualValues(t, 150, result.Rows["default"][outbox.StatusPublished])
	assert.EqualValues(t, 90, result.Rows["partner"][outbox.StatusPublished])
	assert.Equal(t, map[string]int{"default": 150, "partner": 90, "carrier": 30}, result.Delivered)
	assert.EqualValues(t, 30, result.Rows["carrier"][outbox.StatusPublished])
	assert.Zero(t, result.Lost)

	var internal, external struct {
		Metadata struct {
			Headers struct{ ID string }
			Domain  map[string]any
		}
	}
	require.NoError(t, json.Unmarshal(result.InternalExample, &internal))
	require.NoError(t, json.Unmarshal(result.ExternalExample, &external))
	assert.Equal(t, internal.Metadata.Headers.ID, external.Metadata.Headers.ID)
	assert.Contains(t, internal.Metadata.Domain, "priority")
	assert.NotContains(t, external.Metadata.Domain, "priority")
	sums := Projection{OrdersPlaced: 60, RevenueCents: 120 * teapotCents, OrdersShipped: 30, StockReserved: 120}
	outside := sums
	outside.StockReserved = 0
	want := map[string]Projection{warehouse: sums, partner: outside}
	assert.Equal(t, Comparison{Expected: want, Actual: want, Agree: true}, result.Projection)
	assert.Equal(t, 3, result.Kills)
	assert.GreaterOrEqual(t, result.Deliveries, 150+90)
	assert.GreaterOrEqual(t, result.Deliveries-result.DuplicatesDropped, 150+90, "each was handled once, and none of these was a copy")

	for _, text := range []string{"partner's server has closed its port", "carrier's endpoint is busy", "carrier's endpoint takes requests again", "internal broker has closed its port", "is back after", "0 lost", "is killed after", "The numbers agree", "Next:"} {
		assert.Contains(t, live.String(), text)
	}
	assert.NotContains(t, live.String(), "\x1b", "no control characters where there is no terminal")
}

// The comparison must be able to fail.
func TestLedger(t *testing.T) {
	t.Parallel()
	rows := []row{
		{MessageID: "1", TargetBroker: "default", Status: outbox.StatusPublished},
		{MessageID: "1", TargetBroker: "partner", Status: outbox.StatusPublished},
		{MessageID: "2", TargetBroker: "default", Status: outbox.StatusAbandoned},
	}
	arrived := map[string][]arrival{"default": {{id: "1"}, {id: "1"}}, "partner": {{id: "1", data: []byte("{}")}}}
	result := newResult(1, rows, arrived)
	assert.Equal(t, 1, result.Lost)
	assert.Equal(t, 1, result.Duplicates)
	assert.Equal(t, 2, result.Events)
	assert.JSONEq(t, "{}", string(result.ExternalExample))
}

// So must that of the projections: one event twice, one consumer that has heard nothing.
func TestProjectionsThatDisagree(t *testing.T) {
	t.Parallel()
	expected := map[string]Projection{warehouse: {OrdersPlaced: 2, RevenueCents: 10}, partner: {OrdersPlaced: 2, RevenueCents: 10}}
	for name, actual := range map[string]map[string]Projection{
		"twice":   {warehouse: {OrdersPlaced: 3, RevenueCents: 15}, partner: {OrdersPlaced: 2, RevenueCents: 10}},
		"a cent":  {warehouse: {OrdersPlaced: 2, RevenueCents: 10}, partner: {OrdersPlaced: 2, RevenueCents: 9}},
		"nothing": {warehouse: {OrdersPlaced: 2, RevenueCents: 10}},
		"ghost":   {warehouse: {OrdersPlaced: 2, RevenueCents: 10}, partner: {OrdersPlaced: 2, RevenueCents: 10}, "who?": {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := &Result{}
			result.addProjections(expected, actual)
			assert.False(t, result.Projection.Agree)
			require.ErrorIs(t, result.verdict(), errDisagree)
			require.NotErrorIs(t, result.verdict(), errLost)
			var live bytes.Buffer
			newView(settings{live: &live}).projections(result)
			assert.Contains(t, live.String(), "DO NOT AGREE")
		})
	}
	result := &Result{Lost: 1}
	result.addProjections(expected, expected)
	require.ErrorIs(t, result.verdict(), errLost)
	require.NotErrorIs(t, result.verdict(), errDisagree)
	result.Lost = 0
	require.NoError(t, result.verdict())
}

// Whoever subtracts the copies from the deliveries is told what the rest is.
func TestInterruptedDeliveries(t *testing.T) {
	t.Parallel()
	result := &Result{Delivered: map[string]int{"default": 5, "partner": 3}, Deliveries: 10, DuplicatesDropped: 2}
	assert.Empty(t, result.interrupted(), "the numbers add up")
	result.Deliveries = 13
	assert.Contains(t, result.interrupted(), "3 were cut short")
}
