package relay

import (
	"sync/atomic"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/outbox"
)

// sizing adapts the size of calls to the broker. They grow while they come back quickly, up to what
// the broker prefers: each is a round trip, and a distant broker answers only so many in a second.
// They shrink after each call that met an outage, which is then noticed with few messages; and a
// message that causes one by itself is soon alone in its call, wherever it stood.
type sizing struct {
	most     int           // messages in a call that the broker prefers
	quick    time.Duration // calls that take less may grow, those that take twice as long shrink
	halvings atomic.Int32  // of firstCallSize; negative = doublings
}

// firstCallSize is how many messages go into one call to begin with. Between two calls a worker
// checks the lease and the shutdown.
const firstCallSize = 100

const (
	// maxHalvings makes a call of one message.
	maxHalvings = 7
	// quickCall is how long a call may take that is to grow; for a short lease a twentieth of it,
	// since lease, pause and shutdown are checked between two calls; and at most a quarter of the
	// publish timeout, since a call of twice as many messages must stay well below it, or it would
	// be taken for an outage.
	quickCall = time.Second
)

func newSizing(broker brokers.Broker, policy *outbox.Policy) *sizing {
	return &sizing{most: broker.Capabilities().MaxBatch, quick: min(quickCall, policy.Lease/20, policy.PublishTimeout/4)}
}

// learn notes how a call of n messages went.
func (s *sizing) learn(available bool, n int, took time.Duration) {
	before := s.halvings.Load()
	after := before
	switch {
	case !available:
		after = min(max(before, 0)+1, maxHalvings)
	case before > 0:
		after = before - 1
	case took >= 2*s.quick:
		after = min(before+1, 0)
	case took < s.quick && n >= s.size() && n < s.most:
		after = before - 1
	}
	if after != before { // workers that learn at once may overwrite each other: it is no more than advice
		s.halvings.Store(after)
	}
}

// size is how many messages go into one call.
func (s *sizing) size() int {
	halvings := s.halvings.Load()
	if halvings < 0 {
		return min(firstCallSize<<-halvings, s.most)
	}
	return max(firstCallSize>>halvings, 1)
}
