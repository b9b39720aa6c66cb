package inbox

import (
	"time"

	"github.com/gorm-fanout/fanout/retry"
)

// DefaultMaxAttempts is after how many failed attempts a message becomes a dead letter.
const DefaultMaxAttempts = 10

// Retry says how a consumer repeats what has failed. Zero fields have the values of [DefaultRetry].
//
// After MaxAttempts a message becomes a dead letter. This is the only budget of attempts: with
// [Handle] the inbox table counts those of all processes, and keeps the dead letter. With other
// handlers the consumer counts the attempts that have failed in its process, and it forwards the
// message to the dead letters of the broker. Where the broker counts deliveries (Redis; Pub/Sub with
// a dead letter policy), processes that have crashed with the message count as well, and so does on
// Pub/Sub each time that it was given back, as by a stop.
//
// The budget is that of the delivery, over all that one handler does: two effects in one handler,
// each with a [Handle] of its own, share it.
type Retry = retry.Policy

// DefaultRetry is the policy of a consumer that sets none: 10 attempts, 1 s, 2 s, 4 s ... apart,
// and never more than 1 min.
func DefaultRetry() Retry {
	return Retry{
		MaxAttempts: DefaultMaxAttempts, BaseDelay: time.Second, MaxDelay: time.Minute,
		Multiplier: retry.DefaultMultiplier, Jitter: retry.DefaultJitter,
	}
}
