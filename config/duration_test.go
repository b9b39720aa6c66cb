package config_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/config"
)

func TestParseDuration(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"5s": 5 * time.Second, "1h30m": 90 * time.Minute, "1.5s": 1500 * time.Millisecond, "20ms": 20 * time.Millisecond,
		"30d": 30 * day, "1d12h": 36 * time.Hour, "0d": 0, "0s": 0, "-5s": -5 * time.Second, "-1d12h": -36 * time.Hour, "+1d": day,
		"36500d": 36500 * day, "-36500d": -36500 * day,
	} {
		got, err := config.ParseDuration(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for text, want := range map[string]string{
		"5": "has no unit: use a unit as in 5s", "-1.5": "has no unit: use a unit as in 5s", "0": "has no unit: use a unit as in 5s",
		"": "is not a duration", "d": "is not a duration", "5x": "is not a duration", "1h2d": "is not a duration", "1.5d": "is not a duration",
		"1d-2h": "is not a duration", "1d+2h": "is not a duration", "1d5": "is not a duration", "5 s": "is not a duration", "1d2d": "is not a duration",
		"36501d": "is longer than 36500d", "36500d1ns": "is longer than 36500d", "2000000h": "is longer than 36500d",
		"99999999999999999999d": "is longer than 36500d", "-36501d": "is longer than 36500d",
	} {
		_, err := config.ParseDuration(text)
		require.ErrorContains(t, err, want, text)
	}
}
