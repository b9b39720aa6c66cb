package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/benchmarks/internal/chart"
	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
)

// The chart shows each way, of the loops by hand only the fastest on each table.
func TestDrainChart(t *testing.T) {
	t.Parallel()
	r := report.New(nil, 1, false)
	s := r.Scenario("drain")
	for name, rate := range map[string]float64{
		"by hand, outbox table, 1 worker": 5, "by hand, outbox table, 2 workers": 6, "by hand, minimal table, 1 worker": 9, "by hand, minimal table, 2 workers": 8,
		"fanout, unordered": 4, "fanout, 100000 keys": 3, "river, tuned": 1, "row by row": 2,
	} {
		s.Add(name, "rate", "msgs/s", rate)
		s.Add(name, "log", "B/msg", 100)
	}
	drawn := drainChart(r)
	assert.Equal(t, []chart.Bar{
		{Label: "By hand, minimal table, 1 worker", Value: 9, Kind: chart.Limit},
		{Label: "By hand, outbox table, 2 workers", Value: 6, Kind: chart.Limit},
		{Label: "Fanout, unordered", Value: 4, Kind: chart.Ours},
		{Label: "Fanout, ordered, 100,000 keys", Value: 3, Kind: chart.Ours},
		{Label: "Row by row", Value: 2, Kind: chart.Other},
		{Label: "River, tuned", Value: 1, Kind: chart.Other},
	}, drawn.Bars)
	assert.Contains(t, drawn.Note, "medians of 1")
}
