package outbox

import (
	"context"
	"math"
	"time"

	"golang.org/x/time/rate"
)

// throttle keeps a processor within its rate. A nil throttle lets everything through.
type throttle struct {
	limiter *rate.Limiter
}

// newThrottle returns nil for no limit. Bursts are of a tenth of a second: small enough to be even, large enough that a claim is
// worth its round trip.
func newThrottle(perSecond float64) *throttle {
	if perSecond <= 0 {
		return nil
	}
	burst := min(max(1, math.Ceil(perSecond/10)), publishChunk)
	return &throttle{limiter: rate.NewLimiter(rate.Limit(perSecond), int(burst))}
}

// allowance is how many messages may be sent now; where there are none, wait is how long until there is one.
func (t *throttle) allowance() (n int, wait time.Duration) {
	tokens := t.limiter.Tokens()
	if n = int(tokens); n >= 1 {
		return n, 0
	}
	return 0, time.Duration(math.Ceil((1 - tokens) / float64(t.limiter.Limit()) * float64(time.Second)))
}

// most is the largest number of messages that may be sent at once.
func (t *throttle) most(n int) int {
	if t == nil {
		return n
	}
	return min(n, t.limiter.Burst())
}

// take waits until n messages, no more than most, may be sent. It waits only where another worker has been faster. The error
// says that ctx ended before.
func (t *throttle) take(ctx context.Context, n int) error {
	if t == nil {
		return nil
	}
	return t.limiter.WaitN(ctx, n)
}
