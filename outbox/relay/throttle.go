package relay

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

// newThrottle returns nil for no limit. Bursts are of a tenth of a second: small enough to be even,
// large enough that a claim is worth its round trip.
func newThrottle(perSecond float64) *throttle {
	if perSecond <= 0 {
		return nil
	}
	burst := min(max(1, math.Ceil(perSecond/10)), firstCallSize)
	return &throttle{limiter: rate.NewLimiter(rate.Limit(perSecond), int(burst))}
}

// allowance is how many messages may be sent now; where there are none, wait is how long until
// there is one.
func (t *throttle) allowance() (n int, wait time.Duration) {
	if t == nil {
		return math.MaxInt, 0
	}
	tokens := t.limiter.Tokens()
	if n = int(tokens); n >= 1 {
		return n, 0
	}
	wait = longestPause // for less than a message in that time: then it is looked again
	if seconds := (1 - tokens) / float64(t.limiter.Limit()); seconds < longestPause.Seconds() {
		wait = max(time.Duration(math.Ceil(seconds*float64(time.Second))), 1)
	}
	return 0, wait
}

// longestPause keeps what a very low rate leads to within what a duration can hold.
const longestPause = 24 * time.Hour

// exhausted reports whether nothing may be sent at the moment.
func (t *throttle) exhausted() bool {
	n, _ := t.allowance()
	return n == 0
}

// allows bounds a claim, so that nothing is claimed that has to lie about; at least 1.
func (t *throttle) allows(limit int) int {
	n, _ := t.allowance()
	return min(limit, max(n, 1))
}

// wait waits until something may be sent. The error is that of ctx.
func (t *throttle) wait(ctx context.Context) error {
	for {
		n, wait := t.allowance()
		if n > 0 || ctx.Err() != nil {
			break
		}
		sleep(ctx, wait)
	}
	return ctx.Err()
}

// most is the largest number of messages that may be sent at once.
func (t *throttle) most(n int) int {
	if t == nil {
		return n
	}
	return min(n, t.limiter.Burst())
}

// maxTake bounds how long claimed rows wait for the rate: a pause, a shutdown and whoever waits for
// their keys wait with them.
const maxTake = time.Second

// take waits until n messages, no more than most, may be sent. It waits only where another worker
// has been faster. The error says that ctx ended before, or that it would take too long; then
// nothing was taken.
func (t *throttle) take(ctx context.Context, n int) error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, maxTake) // WaitN knows beforehand
	defer cancel()
	return t.limiter.WaitN(ctx, n)
}
