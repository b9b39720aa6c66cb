package inbox

import "time"

// ConsumerStats are what a consumer has done since it was made, and what it has claimed.
type ConsumerStats struct {
	// Received are deliveries, those that were given back at once included; Copies are those of a
	// message that was claimed already.
	Received, Copies int64
	// Handled, Duplicates, DeadLettered and Skipped are the messages by the outcome of their
	// handler; Forwarded those that this consumer has put among the dead letters of the broker.
	Handled, Duplicates, DeadLettered, Skipped, Forwarded int64
	// Unreadable are the messages that could not be read, whatever has become of them: they are among
	// Skipped, Forwarded, DeadLettered or Held as well. One that comes again counts again.
	Unreadable int64
	// Failed are attempts.
	Failed int64
	// Nacked are deliveries that were given back, or given up because their claim was lost.
	Nacked int64
	// AckFailures are confirmations that failed, as far as the broker's client tells. What they
	// were about comes again.
	AckFailures int64
	// Claimed are messages that are neither confirmed nor given back; Running those whose handler
	// runs, Held those that are abandoned while there is no place for dead letters.
	Claimed, Running, Held int64
	// Oldest is for how long this process has claimed the message that it has claimed for longest;
	// 0 where there is none. One that fails for long, or is held, lets it grow.
	Oldest time.Duration
}
