package inbox

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// The defaults of a Retry.
const (
	DefaultConsumerAttempts = 10
	DefaultBaseDelay        = time.Second
	DefaultMultiplier       = 2
	DefaultMaxDelay         = time.Minute
	DefaultJitter           = 0.25
)

// Retry says how a consumer repeats what has failed. Zero fields have the defaults.
type Retry struct {
	// MaxAttempts after which a message goes to the dead letters; default 10. It counts the
	// attempts that have failed in this process and the processes that have died while they had it.
	// A handler that makes a dead letter of it by itself, as [Handle] does after 5, is sooner.
	MaxAttempts int
	// BaseDelay is the pause after the first failure, default 1 s; Multiplier is the factor to the
	// next one, default 2, at least 1; MaxDelay is the longest pause, default 1 min.
	BaseDelay, MaxDelay time.Duration
	Multiplier          float64
	// Jitter is how far each pause is off, at random, as a fraction of it: 0.25 means up to a
	// quarter shorter or longer, never beyond MaxDelay. Default 0.25; a negative one means none.
	Jitter float64
}

// withDefaults fills in what is zero. Doing it twice changes nothing.
func (r Retry) withDefaults() Retry {
	for _, field := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{{&r.BaseDelay, DefaultBaseDelay}, {&r.MaxDelay, DefaultMaxDelay}} {
		if *field.value == 0 {
			*field.value = field.fallback
		}
	}
	if r.MaxAttempts == 0 {
		r.MaxAttempts = DefaultConsumerAttempts
	}
	if r.Multiplier == 0 {
		r.Multiplier = DefaultMultiplier
	}
	if r.Jitter == 0 {
		r.Jitter = DefaultJitter
	}
	return r
}

// Check reports what no consumer can work with.
func (r Retry) Check() error {
	d := r.withDefaults()
	switch {
	case d.MaxAttempts < 1:
		return fmt.Errorf("inbox: retry: MaxAttempts is %d: give at least 1", r.MaxAttempts)
	case d.BaseDelay < 0 || d.MaxDelay < d.BaseDelay:
		return fmt.Errorf("inbox: retry: the delays go from %s to %s: the first must be positive and not above the last", d.BaseDelay, d.MaxDelay)
	case d.Multiplier < 1 || math.IsInf(d.Multiplier, 0) || math.IsNaN(d.Multiplier):
		return fmt.Errorf("inbox: retry: Multiplier is %v: give at least 1", d.Multiplier)
	case d.Jitter >= 1 || math.IsNaN(d.Jitter):
		return fmt.Errorf("inbox: retry: Jitter is %v: give less than 1", d.Jitter)
	}
	return nil
}

// Delay is the pause after the n-th failure, n from 1: BaseDelay times Multiplier to the power of
// n-1, at most MaxDelay, off by Jitter.
func (r Retry) Delay(n int) time.Duration { return r.delay(n, rand.Float64()) }

// delay is Delay with what chance says, from 0 to 1.
func (r Retry) delay(n int, chance float64) time.Duration {
	d := r.withDefaults()
	pauses := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(d.BaseDelay), backoff.WithMultiplier(d.Multiplier), backoff.WithRandomizationFactor(0),
		backoff.WithMaxInterval(d.MaxDelay), backoff.WithMaxElapsedTime(0))
	pause := pauses.NextBackOff()
	for range n - 1 {
		if pause >= d.MaxDelay {
			break
		}
		pause = pauses.NextBackOff()
	}
	off := 1 + max(d.Jitter, 0)*(2*chance-1)
	return min(time.Duration(float64(pause)*off), d.MaxDelay)
}
