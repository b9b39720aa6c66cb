package cleanup

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gorm-fanout/fanout/outbox/admin"
)

// lagPause is the time between two batches while delivery lags.
const lagPause = 5 * time.Second

// askShare is which part of the time may go into questions for the lag. Beside an old transaction they
// take long.
const askShare = 10

// standing is by which part of the time that passes a lag grows at least where nothing is delivered.
// It would be all of it, were times not measured.
const standing = 0.9

// pace tells whether a purge would be in the way of a delivery that lags: not where what waits would
// wait all the same, since the broker is out, no relay has it, or a row cannot be delivered. It is
// safe for concurrent use.
type pace struct {
	maxLag time.Duration

	mu   sync.Mutex
	seen map[string]map[string]sighting // by database and broker: those that lag
	next map[string]time.Time           // by database: before that, one that does not lag is not asked again
}

// sighting is how far a broker lagged when its delivery was last seen to have come forward.
type sighting struct {
	lag time.Duration
	at  time.Time
}

// lags reports whether the delivery to a broker of the configuration is too far behind, and comes
// forward. A broker that has only now fallen behind has a pause to show that.
func (p *pace) lags(database string, backlog []admin.Backlog, now time.Time) (lags bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := make(map[string]sighting)
	for _, broker := range backlog {
		if broker.Unknown || broker.Lag <= p.maxLag {
			continue
		}
		was, known := p.seen[database][broker.Broker]
		passed := now.Sub(was.at)
		stands := float64(broker.Lag-was.lag) >= standing*float64(passed)
		switch {
		case !known, !stands:
			was = sighting{broker.Lag, now}
			lags = true
		case passed < lagPause:
			lags = true
		}
		seen[broker.Broker] = was
	}
	if p.seen == nil {
		p.seen = make(map[string]map[string]sighting)
	}
	p.seen[database] = seen
	return lags
}

// due reports whether it is time to ask a database how far its brokers lag.
func (p *pace) due(database string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !now.Before(p.next[database])
}

// rest is called when nothing lags: a database is not asked again before a time.
func (p *pace) rest(database string, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == nil {
		p.next = make(map[string]time.Time)
	}
	p.next[database] = until
}

// giveWay waits if delivery lags.
func (p *pace) giveWay(ctx context.Context, database string, table Table) error {
	began := time.Now()
	if !p.due(database, began) {
		return nil
	}
	backlog, err := table.Backlog(ctx)
	if err != nil {
		return err
	}
	var wait time.Duration
	now := time.Now()
	if p.lags(database, backlog, now) {
		wait = lagPause
	} else {
		p.rest(database, now.Add(askShare*now.Sub(began)))
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return fmt.Errorf("stopped: %w", ctx.Err())
	case <-timer.C:
		return nil
	}
}
