package pubsubconsumer

import (
	"sync/atomic"

	"github.com/gorm-fanout/fanout/inbox"
)

// Stats are what a consumer has done since it was made, and what it has claimed. How far it is
// behind is a metric of Google Cloud: pubsub.googleapis.com/subscription/oldest_unacked_message_age
// (seconds), beside num_undelivered_messages.
type Stats struct {
	// Received are deliveries, those that were given back at once included; Copies are those of a
	// message that was claimed already.
	Received, Copies int64
	// Handled, Duplicates, DeadLettered and Skipped are the messages by the outcome of their
	// handler; Forwarded those that this consumer has published to the topic of dead letters.
	Handled, Duplicates, DeadLettered, Skipped, Forwarded int64
	// Failed are attempts.
	Failed int64
	// Nacked are deliveries that were given back.
	Nacked int64
	// AckFailures are confirmations, or returns, that failed, as far as Google's client tells: for
	// subscriptions with exactly-once delivery.
	AckFailures int64
	// Claimed are messages that are neither confirmed nor given back; Running those whose handler
	// runs, Held those that are abandoned while there is no place for dead letters.
	Claimed, Running, Held int64
}

type counts struct {
	received, copies, handled, duplicates, deadLettered, skipped, forwarded, failed, nacked, ackFailures, held atomic.Int64
}

func (c *counts) outcome(outcome inbox.Outcome) {
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

// Stats returns the present figures.
func (c *Consumer) Stats() Stats {
	n := &c.counts
	stats := Stats{
		Received: n.received.Load(), Copies: n.copies.Load(), Handled: n.handled.Load(), Duplicates: n.duplicates.Load(),
		DeadLettered: n.deadLettered.Load(), Skipped: n.skipped.Load(), Forwarded: n.forwarded.Load(), Failed: n.failed.Load(),
		Nacked: n.nacked.Load(), AckFailures: n.ackFailures.Load(), Held: n.held.Load(),
	}
	if s := c.session.Load(); s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		stats.Claimed, stats.Running = int64(len(s.queues.byID)), int64(s.queues.running)
	}
	return stats
}
