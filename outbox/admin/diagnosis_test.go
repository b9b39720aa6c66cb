package admin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDiagnosisClock(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name            string
		trip, database  time.Duration // the database's clock from the start of the trip on
		offset, tripErr time.Duration
		warning         string
	}{
		{"the same", 2 * time.Second, time.Second, 0, time.Second, ""},
		{"a minute", 0, time.Minute, time.Minute, 0, ""},
		{"ahead", 0, time.Minute + time.Second, time.Minute + time.Second, 0, "1m1s ahead of this machine's"},
		{"behind", 0, -time.Hour, -time.Hour, 0, "1h0m0s behind this machine's"},
		{"a slow answer proves nothing", 2 * time.Hour, 2 * time.Hour, time.Hour, time.Hour, ""},
		{"a slow answer that proves it", time.Second, -time.Hour, -time.Hour - time.Second/2, time.Second / 2, "behind"},
	} {
		var d Diagnosis
		d.Clock(start, start.Add(c.database), start.Add(c.trip))
		assert.Equal(t, c.offset, d.ClockOffset, c.name)
		assert.Equal(t, c.tripErr, d.ClockError, c.name)
		if c.warning == "" {
			assert.Empty(t, d.Findings, c.name)
			continue
		}
		require.Len(t, d.Findings, 1, c.name)
		assert.Contains(t, d.Findings[0].Message, c.warning, c.name)
		assert.Equal(t, "clock", d.Findings[0].Topic)
		assert.Equal(t, d.Findings, d.Warnings())
		assert.NoError(t, d.Err(), "a warning")
	}
}

func TestDiagnosisErr(t *testing.T) {
	t.Parallel()
	var d Diagnosis
	require.NoError(t, d.Err())
	d.Warn("a", "this is odd")
	d.Refuse("b", "this is a replica")
	d.Refuse("c", "this is old")
	require.EqualError(t, d.Err(), "this is a replica; this is old")
	assert.Equal(t, []Finding{{Topic: "a", Message: "this is odd"}}, d.Warnings())
}
