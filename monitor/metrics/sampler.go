package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
)

const (
	// sampleEvery is the least time between two questions to a database, however often and by whom metrics are collected.
	sampleEvery = 10 * time.Second
	// sampleTime bounds one question, so that a database that hangs does not make the other figures late.
	sampleTime = 3 * time.Second
	// countLimit is where a count of rows ends: above what the shipped alerts ask for.
	countLimit = 20_000
	// brokerLimit bounds the series of one database: a table may hold rows of brokers that nobody knows.
	brokerLimit = 100
)

// sampler remembers where the brokers of one database stood.
type sampler struct {
	database string
	browser  outbox.Browser

	mu      sync.Mutex
	asked   time.Time
	brokers []outbox.BrokerOverview // nil where the database did not answer: old figures would look like good ones
	ok      bool
}

// sampleAll asks the databases at the same time, those that were not asked of late.
func sampleAll(ctx context.Context, samplers []*sampler) {
	var group sync.WaitGroup
	for _, s := range samplers {
		group.Go(func() { s.sample(ctx) })
	}
	group.Wait()
}

// sample asks the database, unless it was asked of late. Who comes while it is asked waits for the same answer.
func (s *sampler) sample(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked.IsZero() && time.Since(s.asked) < sampleEvery {
		return
	}
	s.asked = time.Now()
	ctx, cancel := context.WithTimeout(ctx, sampleTime)
	defer cancel()
	brokers, err := s.browser.Overview(ctx, countLimit)
	s.ok = err == nil
	s.brokers = brokers[:min(len(brokers), brokerLimit)]
	if err != nil {
		s.brokers = nil
	}
}

func (s *sampler) last() (brokers []outbox.BrokerOverview, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.brokers, s.ok
}
