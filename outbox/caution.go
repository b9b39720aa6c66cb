package outbox

import (
	"sync/atomic"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
)

// caution sizes the calls to the broker. They grow while they come back quickly, up to what the broker likes: each is a round trip, of
// which a broker far away takes but so many in a second. They shrink after each one that met an outage, which so is noticed with few
// messages; and a message that makes one by itself, in whatever place of a call, soon stands alone.
type caution struct {
	most     int           // messages in a call that the broker likes; publishChunk where that is less
	quick    time.Duration // calls that take less may grow, those that take twice as long shrink
	halvings atomic.Int32  // of publishChunk; negative = doublings
}

const (
	// maxHalvings makes a call of one message.
	maxHalvings = 7
	// quickCall is what a call may take that is to grow, or a twentieth of a lease that is short: between two calls it is looked
	// whether the lease still stands, the broker is paused and the process stops. Nor is it more than a quarter of the publish timeout:
	// one of twice as many messages must stay well below it, or would be taken for an outage.
	quickCall = time.Second
)

// newCaution begins with calls of publishChunk.
func newCaution(broker brokers.Broker, policy *Policy) *caution {
	return &caution{most: broker.Capabilities().MaxBatch, quick: min(quickCall, policy.Lease/20, policy.PublishTimeout/4)}
}

// learn notes how a call of n messages went.
func (c *caution) learn(available bool, n int, took time.Duration) {
	before := c.halvings.Load()
	after := before
	switch {
	case !available:
		after = min(max(before, 0)+1, maxHalvings)
	case before > 0:
		after = before - 1
	case took >= 2*c.quick:
		after = min(before+1, 0)
	case took < c.quick && n >= c.chunk() && n < c.most:
		after = before - 1
	}
	if after != before { // workers that learn at once may overwrite each other: it is no more than advice
		c.halvings.Store(after)
	}
}

// chunk is how many messages go into one call.
func (c *caution) chunk() int {
	halvings := c.halvings.Load()
	if halvings < 0 {
		return min(publishChunk<<-halvings, c.most)
	}
	return max(publishChunk>>halvings, 1)
}
