package outbox

import "sync/atomic"

// caution makes calls to the broker smaller after each one that met an outage, and larger again with those that pass. An outage is
// noticed with few messages; and a message that makes one by itself, in whatever place of a call, soon stands alone.
type caution struct{ halvings atomic.Int32 }

// maxHalvings makes a call of one message.
const maxHalvings = 7

// learn notes how a call went.
func (c *caution) learn(available bool) {
	before := c.halvings.Load()
	after := max(before-1, 0)
	if !available {
		after = min(before+1, maxHalvings)
	}
	if after != before { // workers that learn at once may overwrite each other: it is no more than advice
		c.halvings.Store(after)
	}
}

// chunk is how many messages go into one call.
func (c *caution) chunk() int { return max(publishChunk>>c.halvings.Load(), 1) }
