package outbox

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
)

// Policy says how one broker's rows are delivered. Zero values take the defaults.
type Policy struct {
	// Workers is how many claims and completions are in progress at once, each on a shard of its own;
	// more than the store's shards bring nothing. Each worker has two batches on their way: one is
	// published while the next is claimed, and the one before it completed. So as many batches are
	// with the broker as its slowness makes of them, up to one for each shard. Default 2.
	Workers int
	// BatchSize is the most rows in one claim. Default 500: beyond that only latency grows.
	BatchSize int
	// BatchBytes is the most that the payloads and headers of one claim may have together; a message
	// that has more is claimed alone. It bounds the memory that a batch takes, of which there are up to two
	// for each worker. Default 16 MiB: rows of up to 32 KiB fill a batch of the default size.
	BatchBytes int
	// MaxPayloadBytes is the most bytes that a payload may have. One that has more, as no writer in Go
	// makes it below its own limit, is not read, and its row is abandoned. Default: 16 MiB, or
	// BatchBytes if that is more.
	MaxPayloadBytes int
	// Lease is how long claimed rows belong to a worker; it is renewed while publishing takes
	// longer, so it bounds only how long the rows of a dead process wait, and for how long a worker
	// tries to write the outcome of a batch while the database is away. Default 1 min.
	Lease time.Duration
	// PublishTimeout bounds one call to the broker; below Lease. Default 30 s.
	PublishTimeout time.Duration
	// Unordered switches the order per key off.
	Unordered bool
	// BlockAbandoned makes the rest of an ordering key in its priority class wait once a message of it
	// was abandoned, until an operator requeues the message or lets the key go on. Default: the key
	// goes on.
	BlockAbandoned bool
	// DeletePublished removes a row as soon as its broker has confirmed the message, in place of
	// marking it as published: no history, no search and no replay of what was delivered, for about
	// 0.6 of the database's processor time. What was published before stays until the purge, and
	// abandoned rows are kept in any case. Default: rows stay until the purge. See docs/operations.md.
	DeletePublished bool
	// Retry after failures that are the message's own.
	Retry Retry
	// PollMin and PollMax bound the time between two looks at the table: the shortest follows rows
	// that a look has found, and it doubles while none finds any. Defaults 20 ms and 1 s.
	PollMin, PollMax time.Duration
	// Breaker stops sending while the broker, or one of its destinations, is unavailable.
	Breaker Breaker
	// Rate is the most messages that this processor publishes in a second, evenly spread. Each
	// process, and in a process each database, counts by itself. Default: 0, no limit.
	Rate float64
	// ShutdownTimeout is how long a publish in progress may still take once the processor is asked
	// to stop. Default 20 s.
	ShutdownTimeout time.Duration
}

// WithDefaults fills in what is zero.
func (p Policy) WithDefaults() Policy {
	setDefault(&p.Workers, 2)
	setDefault(&p.BatchSize, 500)
	setDefault(&p.BatchBytes, DefaultBatchBytes)
	setDefault(&p.MaxPayloadBytes, max(DefaultBatchBytes, p.BatchBytes))
	setDefault(&p.Lease, time.Minute)
	setDefault(&p.PublishTimeout, min(brokers.DefaultPublishTimeout, p.Lease/2))
	setDefault(&p.PollMin, 20*time.Millisecond)
	setDefault(&p.PollMax, max(time.Second, p.PollMin))
	p.Breaker = p.Breaker.withDefaults()
	setDefault(&p.ShutdownTimeout, 20*time.Second)
	p.Retry = p.Retry.WithDefaults(DefaultRetry())
	return p
}

// A Breaker stops sending to a broker, or to one of its destinations, that is unavailable, and
// tries it out with a few messages now and then. No message loses an attempt meanwhile. Zero values
// take the defaults.
type Breaker struct {
	// TripAfter is after how many publishes in a row that met an outage the breaker opens. One
	// message that looks like an outage by itself, between others that pass, so never stops them.
	// Default 3.
	TripAfter int
	// MinDelay and MaxDelay bound the time between two tries: it begins with MinDelay, doubles up
	// to MaxDelay, and is shortened at random by up to a quarter. Defaults 250 ms and 15 s.
	MinDelay, MaxDelay time.Duration
}

func (b Breaker) withDefaults() Breaker {
	setDefault(&b.TripAfter, 3)
	setDefault(&b.MinDelay, 250*time.Millisecond)
	setDefault(&b.MaxDelay, max(15*time.Second, b.MinDelay))
	return b
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// MaxBatchSize keeps a claim on SQL Server below the number of row locks at which it would lock the
// whole table.
const MaxBatchSize = 2000

// DefaultBatchBytes bounds the payloads and headers of one claim where the policy does not.
const DefaultBatchBytes = 16 << 20

// Validate reports everything that is wrong with the policy, all problems joined in one error.
func (p Policy) Validate() error {
	p = p.WithDefaults()
	var problems []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf("outbox: "+format, args...))
		}
	}
	check(p.Workers >= 1, "workers is %d: use at least 1", p.Workers)
	check(p.BatchSize >= 1 && p.BatchSize <= MaxBatchSize, "batch_size is %d: use 1 to %d", p.BatchSize, MaxBatchSize)
	check(p.BatchBytes >= 1, "batch_bytes is %d: use a positive number of bytes", p.BatchBytes)
	check(p.MaxPayloadBytes >= 1, "max_payload_bytes is %d: use a positive number of bytes", p.MaxPayloadBytes)
	check(p.Lease >= time.Second, "lease is %s: use at least 1s", p.Lease)
	check(p.PublishTimeout > 0, "publish_timeout is %s: use a positive duration", p.PublishTimeout)
	check(p.PublishTimeout < p.Lease, "publish_timeout (%s) must be below lease (%s): a publish must end before its rows can be claimed by others", p.PublishTimeout, p.Lease)
	check(p.PollMin > 0, "poll.min is %s: use a positive duration", p.PollMin)
	check(p.PollMax >= p.PollMin, "poll.max (%s) is below poll.min (%s)", p.PollMax, p.PollMin)
	check(p.Breaker.TripAfter >= 1, "breaker.trip_after is %d: use at least 1", p.Breaker.TripAfter)
	check(p.Breaker.MinDelay > 0, "breaker.min_delay is %s: use a positive duration", p.Breaker.MinDelay)
	check(p.Breaker.MaxDelay >= p.Breaker.MinDelay, "breaker.max_delay (%s) is below breaker.min_delay (%s)", p.Breaker.MaxDelay, p.Breaker.MinDelay)
	check(p.Rate >= 0 && !math.IsInf(p.Rate, 0) && !math.IsNaN(p.Rate), "rate is %g: use a positive number of messages per second, or 0 for no limit", p.Rate)
	check(p.ShutdownTimeout > 0, "shutdown_timeout is %s: use a positive duration", p.ShutdownTimeout)
	if err := p.Retry.Validate(); err != nil {
		problems = append(problems, fmt.Errorf("outbox: %w", err))
	}
	return errors.Join(problems...)
}
