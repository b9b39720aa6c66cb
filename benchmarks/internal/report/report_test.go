package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestStatistics(t *testing.T) {
	t.Parallel()
	assert.Zero(t, Median(nil))
	assert.InDelta(t, 2, Median([]float64{9, 1, 2}), 0)
	assert.InDelta(t, 1.5, Median([]float64{2, 9, 1, 1}), 0)

	times := make([]time.Duration, 0, 200)
	for n := range 200 {
		times = append(times, time.Duration(200-n))
	}
	assert.Zero(t, Percentile(nil, 0.5))
	assert.Equal(t, time.Duration(100), Percentile(times, 0.5))
	assert.Equal(t, time.Duration(198), Percentile(times, 0.99))
	assert.Equal(t, time.Duration(200), Percentile(times, 1))
	assert.Equal(t, time.Duration(1), Percentile(times, 0))
}

// The verdict follows the median over all runs, not the last of them, and a short run has none.
func TestVerdict(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		short bool
		least bool
		runs  []float64
		want  string
	}{
		"met":          {runs: []float64{1.2, 7, 1.3}, want: "<= 1.50 met"},
		"missed":       {runs: []float64{1.2, 7, 8}, want: "<= 1.50 MISSED"},
		"short":        {short: true, runs: []float64{7}, want: "<= 1.50"},
		"at the most":  {runs: []float64{1.5}, want: "<= 1.50 met"},
		"large enough": {least: true, runs: []float64{1.2, 7, 8}, want: ">= 1.50 met"},
		"too small":    {least: true, runs: []float64{1.2, 7, 1.3}, want: ">= 1.50 MISSED"},
		"at the least": {least: true, runs: []float64{1.5}, want: ">= 1.50 met"},
		"small, short": {least: true, short: true, runs: []float64{1}, want: ">= 1.50"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := New([]string{"claims"}, 7, test.short)
			for _, value := range test.runs {
				r.Scenario("claims").Add("1 key", "p99", "ms", 10*value)
				if test.least {
					r.Scenario("claims").AddRatioAtLeast("1 key", "p99 ratio", value, 1.5)
				} else {
					r.Scenario("claims").AddRatio("1 key", "p99 ratio", value, 1.5)
				}
			}
			require.Len(t, r.Figures, 2)
			assert.Equal(t, test.runs, r.Figures[1].Runs)
			assert.Empty(t, r.Figures[0].verdict())
			assert.Equal(t, test.want, r.Figures[1].verdict())
		})
	}
}

func TestOutput(t *testing.T) {
	t.Parallel()
	r := New([]string{"claims", "--runs=2"}, 7, true)
	r.Servers["PostgreSQL"] = "15.1"
	for _, value := range []float64{12.345, 1234.5} {
		r.Scenario("claims").Add("1 key", "p99", "ms", value)
	}
	var text, encoded bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	assert.Regexp(t, `claims +1 key +p99 +623 +ms +12\.3 12(34|35)\b`, text.String())
	assert.Contains(t, text.String(), "PostgreSQL 15.1, seed 7; SHORT")

	require.NoError(t, r.WriteJSON(&encoded))
	var back Report
	decoder := json.NewDecoder(strings.NewReader(encoded.String()))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&back))
	assert.Equal(t, r.Figures, back.Figures)
	assert.Equal(t, r.Arguments, back.Arguments)
}
