package scenario

import (
	"context"
	"sync"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// confirm is a broker that confirms everything at once and keeps nothing, so that what is left is
// the cost of the outbox.
type confirm struct{}

// Publish implements brokers.Broker.
func (confirm) Publish(_ context.Context, msgs []brokers.Message) []brokers.Result {
	results := make([]brokers.Result, len(msgs))
	for i := range results {
		results[i].BrokerMessageID = brokerMessageID
	}
	return results
}

// Capabilities implements brokers.Broker.
func (confirm) Capabilities() brokers.Capabilities { return brokers.Capabilities{Ordering: true} }

// Ping implements brokers.Broker.
func (confirm) Ping(context.Context) error { return nil }

// Close implements brokers.Broker.
func (confirm) Close(context.Context) error { return nil }

// stopwatch is a store that notes how long exchanges take.
type stopwatch struct {
	driver.Store

	mu   sync.Mutex
	laps []lap
}

// lap is one exchange that has claimed something.
type lap struct {
	at   time.Time // when it began
	took time.Duration
	rows int
}

// Exchange implements driver.Delivery.
func (s *stopwatch) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	began := time.Now()
	exchanged, err := s.Store.Exchange(ctx, completion, claim)
	if rows := len(exchanged.Batch.Messages); rows > 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.laps = append(s.laps, lap{at: began, took: time.Since(began), rows: rows})
	}
	return exchanged, err
}

// since returns the times of the exchanges that began at a moment or later, and how many rows they
// claimed.
func (s *stopwatch) since(moment time.Time) (times []time.Duration, rows int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, lap := range s.laps {
		if !lap.at.Before(moment) {
			times = append(times, lap.took)
			rows += lap.rows
		}
	}
	return times, rows
}
