// Package retry says how often something that failed is tried again, and how long to wait in
// between. Relays, consumers and units of work share this one rule; each has defaults of its own.
package retry

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// The shape of every policy that does not set its own.
const (
	DefaultMultiplier = 2
	DefaultJitter     = 0.25
)

// Policy says when a failed attempt is followed by another one. The first attempt is made at once;
// attempt n+1 follows the n-th failure after BaseDelay x Multiplier^(n-1), at most MaxDelay, spread
// by +-Jitter and then again at most MaxDelay. Zero fields stand for the defaults of whoever takes
// the policy. It is a plain value, safe for concurrent use.
type Policy struct {
	// MaxAttempts after which no other follows, at least 1.
	MaxAttempts int
	// BaseDelay after the first failure. Its default is never above MaxDelay.
	BaseDelay time.Duration
	// Multiplier from one delay to the next, at least 1. Default [DefaultMultiplier].
	Multiplier float64
	// MaxDelay caps every delay, jitter included. Its default is never below BaseDelay.
	MaxDelay time.Duration
	// Jitter is the largest deviation as a fraction of the delay, from 0 to 1; negative = none.
	// Default [DefaultJitter].
	Jitter float64
}

// WithDefaults fills in what is zero: from defaults, and Multiplier and Jitter where those are zero
// there, too, from the constants. Doing it twice changes nothing.
func (p Policy) WithDefaults(defaults Policy) Policy {
	p.MaxAttempts = cmp.Or(p.MaxAttempts, defaults.MaxAttempts)
	if p.BaseDelay == 0 {
		p.BaseDelay = defaults.BaseDelay
		if p.MaxDelay > 0 {
			p.BaseDelay = min(p.BaseDelay, p.MaxDelay)
		}
	}
	p.MaxDelay = cmp.Or(p.MaxDelay, max(defaults.MaxDelay, p.BaseDelay))
	p.Multiplier = cmp.Or(p.Multiplier, defaults.Multiplier, DefaultMultiplier)
	p.Jitter = cmp.Or(p.Jitter, defaults.Jitter, DefaultJitter)
	return p
}

// Validate reports everything that is wrong with a policy that has its defaults, all problems
// joined in one error. They name the settings as configuration files do.
func (p Policy) Validate() error {
	var problems []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	check(p.MaxAttempts >= 1, "retry.max_attempts is %d: use at least 1", p.MaxAttempts)
	check(p.BaseDelay >= 0, "retry.base_delay is %s: use a positive duration", p.BaseDelay)
	check(p.Multiplier >= 1 && !math.IsInf(p.Multiplier, 0), "retry.multiplier is %g: use at least 1", p.Multiplier) // and not NaN
	check(p.MaxDelay >= p.BaseDelay, "retry.max_delay is %s, below base_delay (%s)", p.MaxDelay, p.BaseDelay)
	check(p.Jitter <= 1, "retry.jitter is %g: use a fraction from 0 to 1", p.Jitter)
	return errors.Join(problems...)
}

// Delay is the time to wait after the given number of failures, at least 1.
func (p Policy) Delay(failures int) time.Duration {
	p = p.WithDefaults(Policy{})
	interval := float64(p.BaseDelay)
	for range failures - 1 {
		interval *= p.Multiplier
		if interval >= float64(p.MaxDelay) {
			interval = float64(p.MaxDelay)
			break
		}
	}
	delays := backoff.ExponentialBackOff{
		InitialInterval:     time.Duration(interval),
		RandomizationFactor: max(p.Jitter, 0),
		Multiplier:          p.Multiplier,
		MaxInterval:         p.MaxDelay,
		MaxElapsedTime:      0, // the default of 15 minutes would stop the retries of longer delays
		Clock:               backoff.SystemClock,
	}
	delays.Reset()
	return min(delays.NextBackOff(), p.MaxDelay) // the cap holds after the jitter, too
}
