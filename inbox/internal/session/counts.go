package session

import (
	"sync/atomic"

	"github.com/gorm-fanout/fanout/inbox"
)

// Counts are what a consumer counts. The zero value is ready.
type Counts struct {
	received, copies, handled, duplicates, deadLettered, skipped, forwarded, failed, nacked, ackFailures, held atomic.Int64
}

// outcome counts a message that is done with.
func (c *Counts) outcome(outcome inbox.Outcome) {
	switch outcome {
	case inbox.Handled:
		c.handled.Add(1)
	case inbox.Duplicate:
		c.duplicates.Add(1)
	case inbox.DeadLettered:
		c.deadLettered.Add(1)
	case inbox.Skipped:
		c.skipped.Add(1)
	default: // a handler of its own kind
		c.handled.Add(1)
	}
}

// Stats returns the present figures; s is the running session, nil for none.
func (c *Counts) Stats(s *Session) inbox.ConsumerStats {
	stats := inbox.ConsumerStats{
		Received: c.received.Load(), Copies: c.copies.Load(), Handled: c.handled.Load(), Duplicates: c.duplicates.Load(),
		DeadLettered: c.deadLettered.Load(), Skipped: c.skipped.Load(), Forwarded: c.forwarded.Load(), Failed: c.failed.Load(),
		Nacked: c.nacked.Load(), AckFailures: c.ackFailures.Load(), Held: c.held.Load(),
	}
	if s != nil {
		claimed, running := s.Figures()
		stats.Claimed, stats.Running, stats.Oldest = int64(claimed), int64(running), s.Oldest()
	}
	return stats
}
