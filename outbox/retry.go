package outbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Retry says when a failed row is tried again. The first attempt is made at once; attempt n+1 follows the n-th failure
// after BaseDelay x Multiplier^(n-1), at most MaxDelay, spread by +-Jitter and then again at most MaxDelay.
type Retry struct {
	// MaxAttempts after which a row is abandoned. Default 5.
	MaxAttempts int
	// BaseDelay after the first failure. Default 60 s.
	BaseDelay time.Duration
	// Multiplier from one delay to the next, at least 1. Default 2.
	Multiplier float64
	// MaxDelay caps every delay, jitter included. Default 1 h.
	MaxDelay time.Duration
	// Jitter is the largest deviation as a fraction of the delay, from 0 to 1; negative = none. Default 0.25.
	Jitter float64
}

// DefaultRetry is the policy of a broker that configures none.
func DefaultRetry() Retry {
	return Retry{MaxAttempts: 5, BaseDelay: time.Minute, Multiplier: 2, MaxDelay: time.Hour, Jitter: 0.25}
}

// WithDefaults fills in what is zero.
func (r Retry) WithDefaults() Retry {
	d := DefaultRetry()
	if r.MaxAttempts == 0 {
		r.MaxAttempts = d.MaxAttempts
	}
	if r.BaseDelay == 0 {
		r.BaseDelay = d.BaseDelay
	}
	if r.Multiplier == 0 {
		r.Multiplier = d.Multiplier
	}
	if r.MaxDelay == 0 {
		r.MaxDelay = max(d.MaxDelay, r.BaseDelay)
	}
	if r.Jitter == 0 {
		r.Jitter = d.Jitter
	}
	return r
}

// Validate reports everything that is wrong with the policy, all problems joined in one error.
func (r Retry) Validate() error {
	r = r.WithDefaults()
	var problems []error
	if r.MaxAttempts < 1 {
		problems = append(problems, fmt.Errorf("outbox: retry.max_attempts is %d: use at least 1", r.MaxAttempts))
	}
	if r.BaseDelay < 0 {
		problems = append(problems, fmt.Errorf("outbox: retry.base_delay is %s: use a positive duration", r.BaseDelay))
	}
	if !(r.Multiplier >= 1) { // and not NaN
		problems = append(problems, fmt.Errorf("outbox: retry.multiplier is %g: use at least 1", r.Multiplier))
	}
	if r.MaxDelay < r.BaseDelay {
		problems = append(problems, fmt.Errorf("outbox: retry.max_delay is %s, below base_delay (%s)", r.MaxDelay, r.BaseDelay))
	}
	if !(r.Jitter <= 1) {
		problems = append(problems, fmt.Errorf("outbox: retry.jitter is %g: use a fraction from 0 to 1", r.Jitter))
	}
	return errors.Join(problems...)
}

// Delay is the time to wait after the given number of failures, at least 1. It is safe for concurrent use.
func (r Retry) Delay(failures int) time.Duration {
	interval := float64(r.BaseDelay)
	for range failures - 1 {
		interval *= r.Multiplier
		if interval >= float64(r.MaxDelay) {
			interval = float64(r.MaxDelay)
			break
		}
	}
	policy := backoff.ExponentialBackOff{
		InitialInterval:     time.Duration(interval),
		RandomizationFactor: max(r.Jitter, 0),
		Multiplier:          r.Multiplier,
		MaxInterval:         r.MaxDelay,
		MaxElapsedTime:      0, // the default of 15 minutes would stop the retries of longer delays
		Clock:               backoff.SystemClock,
	}
	policy.Reset()
	return min(policy.NextBackOff(), r.MaxDelay) // the cap holds after the jitter, too
}
