package relay

import (
	"sync/atomic"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// Stats are a processor's counters since it was made.
type Stats struct {
	Database, Broker string
	// Claimed rows; Published of them; Retried and Abandoned; Released unsent or because the broker
	// was unavailable.
	Claimed, Published, Retried, Abandoned, Released int64
	// LeaseLost counts rows that had been claimed by another worker by the time their outcome was
	// to be written.
	LeaseLost int64
	// Leases are the batches that this process has claimed and not completed.
	Leases int
	// Unavailable is true while the broker counts as unavailable.
	Unavailable bool
	// Breaker of the broker as a whole.
	Breaker BreakerState
	// UnavailableDestinations are those whose own breaker is not closed, sorted by name.
	UnavailableDestinations []string
	// Paused is true while an operator has paused the broker, as far as this processor knows.
	Paused bool
	// Stranded rows are open and no rule can ever make them due ([outbox.StateStranded]), as far as the
	// last search knows; the engine looks at 10,000 deferred rows in ten minutes.
	Stranded int64
	// Listener says whether the processor hears of rows that other processes commit.
	Listener ListenerState
}

type counters struct {
	claimed, published, retried, abandoned, released, leaseLost atomic.Int64
}

// count adds the outcomes of one batch.
func (c *counters) count(s *driver.Completion) {
	c.published.Add(int64(len(s.Published)))
	for i := range s.Other {
		switch {
		case s.Other[i].Status == outbox.StatusAbandoned:
			c.abandoned.Add(1)
		case s.Other[i].Spent:
			c.retried.Add(1)
		default:
			c.released.Add(1)
		}
	}
}
