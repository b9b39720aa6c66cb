package outbox

import (
	"math/rand/v2"
	"time"
)

// pace says when a processor looks for work again. While looks find rows that can be claimed, of which nobody has told it, it
// looks after poll.min; else after twice as long each time, up to poll.max. Rows that wake-ups announce are claimed before a look
// finds them, so that a processor that is told of all rows looks seldom even when it has much to do.
type pace struct {
	least, most time.Duration
	interval    time.Duration
	found       bool  // by the last look
	claimed     int64 // as of the last look
}

// pollSpread is by which part of it an interval may be shorter, so that processes that were started at once, or that met the
// same outage, do not look in step. It is never longer: poll.max is a promise.
const pollSpread = 0.2

func newPace(policy *Policy) *pace {
	return &pace{least: policy.PollMin, most: policy.PollMax, interval: policy.PollMin}
}

// next takes what a look has found, how many rows the processor has claimed so far, and the look's error.
func (p *pace) next(found bool, claimed int64, err error) time.Duration {
	again := false
	switch {
	case err != nil:
		p.interval = min(2*p.interval, p.most)
	case p.found && claimed != p.claimed: // a row may look ready and still have to wait for one before it
		p.interval = p.least
	default:
		again = found && !p.found // a first find: there may be more to come
		p.interval = min(2*p.interval, p.most)
	}
	p.found, p.claimed = found && err == nil, claimed
	if again {
		return p.least
	}
	return p.interval - time.Duration(pollSpread*rand.Float64()*float64(p.interval))
}
