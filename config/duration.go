package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// maxDuration bounds every duration: a hundred years.
const maxDuration = 100 * 365 * 24 * time.Hour

// durationPattern is what ParseDuration takes, but for durations that are too long, and notZero what the
// positive ones have, for editors, in what regular expressions have in common everywhere.
const (
	durationPattern = `^\+?([0-9]+d)?(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))*$`
	notZero         = `[1-9]`
)

const durationExamples = "such as 500ms, 30s, 5m, 24h or 30d"

var (
	dayPart    = regexp.MustCompile(`^([-+]?[0-9]+)d(.*)$`)
	wellFormed = regexp.MustCompile(durationPattern)
	bareNumber = regexp.MustCompile(`^[-+]?[0-9]*\.?[0-9]+$`)

	errNotADuration = errors.New("is not a duration: write one " + durationExamples)
)

// ParseDuration reads a duration in Go's form ("1h30m", "250ms"), with days of 24 hours in front:
// "30d", "1d12h". A number needs a unit. The result is negative where the text says so; it is at
// most a hundred years either way. The error does not repeat the text.
func ParseDuration(text string) (time.Duration, error) {
	if bareNumber.MatchString(text) {
		return 0, errors.New("has no unit: use a unit as in 5s")
	}
	rest, days := text, time.Duration(0)
	if match := dayPart.FindStringSubmatch(text); match != nil {
		number, err := time.ParseDuration(match[1] + "h")
		if err != nil || number.Abs() > maxDuration/24 {
			return 0, errTooLong()
		}
		days, rest = 24*number, match[2]
		if rest == "" {
			return days, nil
		}
		if strings.ContainsAny(rest[:1], "-+") || bareNumber.MatchString(rest) {
			return 0, errNotADuration
		}
		if match[1][0] == '-' {
			rest = "-" + rest
		}
	}
	duration, err := time.ParseDuration(rest)
	if err != nil {
		if unsigned := strings.TrimPrefix(text, "-"); wellFormed.MatchString(unsigned) && strings.ContainsAny(unsigned, "123456789") {
			return 0, errTooLong() // for package time
		}
		return 0, errNotADuration
	}
	if duration.Abs() > maxDuration || (days+duration).Abs() > maxDuration {
		return 0, errTooLong()
	}
	return days + duration, nil
}

func errTooLong() error {
	return fmt.Errorf("is longer than %dd: no duration here can be", int64(maxDuration/(24*time.Hour)))
}

// short prints a duration as one would write it: 1h rather than 1h0m0s.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
