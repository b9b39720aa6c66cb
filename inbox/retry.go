package inbox

import (
	"time"

	"github.com/gorm-fanout/fanout/retry"
)

// Retry says how a consumer repeats what has failed. Zero fields have the values of [DefaultRetry].
//
// After its MaxAttempts a message goes to the dead letters. They count the attempts that have
// failed in this process and the processes that have died while they had it. A handler that makes a
// dead letter of it by itself, as [Handle] does after 5, is sooner.
type Retry = retry.Policy

// DefaultRetry is the policy of a consumer that sets none: 10 attempts, 1 s, 2 s, 4 s ... apart,
// and never more than 1 min.
func DefaultRetry() Retry {
	return Retry{
		MaxAttempts: 10, BaseDelay: time.Second, MaxDelay: time.Minute,
		Multiplier: retry.DefaultMultiplier, Jitter: retry.DefaultJitter,
	}
}
