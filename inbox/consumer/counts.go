package consumer

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorm-fanout/fanout/inbox"
)

// Counts are what a consumer counts. The zero value is ready.
type Counts struct {
	received, copies, handled, duplicates, deadLettered, skipped, forwarded, failed, nacked, ackFailures, held, unreadable atomic.Int64

	mu      sync.Mutex
	notices map[string]*notice // by what they are about: a finite number
}

// notice is when something was logged last, and how often it has happened since.
type notice struct {
	at time.Time
	n  int64
}

// notice counts what is to be logged once a minute at most. It returns 0, or how many times it has
// happened since it was logged last: then it is to be logged now.
func (c *Counts) notice(about string, now time.Time) (n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.notices == nil {
		c.notices = map[string]*notice{}
	}
	last := c.notices[about]
	if last == nil {
		last = &notice{}
		c.notices[about] = last
	}
	last.n++
	if now.Sub(last.at) < tellAgain {
		return 0
	}
	n = last.n
	*last = notice{at: now}
	return n
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
		Nacked: c.nacked.Load(), AckFailures: c.ackFailures.Load(), Held: c.held.Load(), Unreadable: c.unreadable.Load(),
	}
	if s != nil {
		claimed, running := s.Figures()
		stats.Claimed, stats.Running, stats.Oldest = int64(claimed), int64(running), s.Oldest()
	}
	return stats
}
