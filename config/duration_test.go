package config_test

import (
	"encoding/json"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

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
		"99999999999999999999d": "is longer than 36500d", "9999999h": "is longer than 36500d", "1d-": "is not a duration", "+-5s": "is not a duration", "-36501d": "is longer than 36500d",
	} {
		_, err := config.ParseDuration(text)
		require.ErrorContains(t, err, want, text)
	}
}

// Editors take what ParseDuration takes, where a duration has to be positive. That one is too long, or
// less than a nanosecond, they do not see.
func TestDurationsOfTheSchema(t *testing.T) {
	t.Parallel()
	var schema struct {
		Definitions struct {
			Duration struct {
				Pattern string
				AllOf   []struct{ Pattern string }
			}
		}
	}
	require.NoError(t, json.Unmarshal(config.Schema(), &schema))
	kind := schema.Definitions.Duration
	require.Len(t, kind.AllOf, 1)
	pattern, positive := regexp.MustCompile(kind.Pattern), regexp.MustCompile(kind.AllOf[0].Pattern)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			rapid.StringMatching(`[-+]?([0-9]{1,3}d)?([0-9]{0,3}\.?[0-9]{0,3}(ns|us|µs|μs|ms|s|m|h|d)?){0,3}`),
			rapid.StringOfN(rapid.SampledFrom([]rune("0159.dhmsnµ+- ")), 0, 8, -1),
		).Draw(t, "text")
		d, err := config.ParseDuration(text)
		taken := pattern.MatchString(text) && positive.MatchString(text)
		switch {
		case err == nil && d > 0:
			assert.True(t, taken, "%q", text)
		case err != nil && taken:
			assert.ErrorContains(t, err, "is longer than", "%q", text)
		case taken: // less than a nanosecond, unless it is negative
			assert.Zero(t, d, "%q", text)
		}
	})
}
