package outbox

import (
	"time"

	"github.com/gorm-fanout/fanout/retry"
)

// Retry says when a failed row is tried again. After its last attempt the row is abandoned. Zero
// fields have the values of [DefaultRetry].
type Retry = retry.Policy

// DefaultRetry is the policy of a broker that configures none: 5 attempts, 1 min, 2 min, 4 min and
// 8 min apart, and never more than 1 h.
func DefaultRetry() Retry {
	return Retry{
		MaxAttempts: 5, BaseDelay: time.Minute, MaxDelay: time.Hour,
		Multiplier: retry.DefaultMultiplier, Jitter: retry.DefaultJitter,
	}
}
