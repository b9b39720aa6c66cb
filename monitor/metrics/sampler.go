package metrics

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

const (
	// sampleEvery is the least time between two questions to a database, however often and by whom metrics are collected.
	sampleEvery = 10 * time.Second
	// sampleTime bounds one question, so that a database that hangs does not make the other figures late.
	sampleTime = 3 * time.Second
	// countLimit is where a count of rows ends: above what the shipped alerts ask for.
	countLimit = 20_000
	// foreignLimit bounds the series of one database that are of brokers which nobody configures: anybody who may write rows names them.
	foreignLimit = 20
)

// sampler remembers where the brokers of one database stood.
type sampler struct {
	database   string
	browser    admin.Administration
	configured []string
	log        *slog.Logger

	mu      sync.Mutex
	asked   time.Time
	brokers []admin.BrokerOverview // nil where the database did not answer: old figures would look like good ones
	ok      bool
	told    bool // that brokers are summed up
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
	s.brokers = nil
	if err == nil {
		s.brokers = s.bound(ctx, brokers)
	}
}

// OtherBrokers is the broker under which those are summed up that are beyond the bound. The configuration allows no such name.
const OtherBrokers = "(others)"

// bound puts the configured brokers first, all of them; of the others, which rows of strangers may name, it keeps a few, those with the
// least names, and sums up the rest.
func (s *sampler) bound(ctx context.Context, all []admin.BrokerOverview) []admin.BrokerOverview {
	var known, foreign []admin.BrokerOverview
	for i := range all {
		if slices.Contains(s.configured, all[i].Broker) {
			known = append(known, all[i])
		} else {
			foreign = append(foreign, all[i])
		}
	}
	slices.SortFunc(foreign, func(a, b admin.BrokerOverview) int {
		if last := a.Broker == OtherBrokers; last != (b.Broker == OtherBrokers) { // so that nothing else has this name beside it
			return map[bool]int{true: 1, false: -1}[last]
		}
		return strings.Compare(a.Broker, b.Broker)
	})
	few := min(len(foreign), foreignLimit)
	bounded := slices.Concat(known, foreign[:few])
	if len(foreign) == few {
		s.told = false
		return bounded
	}
	if !s.told {
		s.told = true
		s.log.WarnContext(ctx, "many brokers that are not configured have rows: the metrics sum them up", "database", s.database, "brokers", len(foreign), "label", OtherBrokers)
	}
	rest := admin.BrokerOverview{Broker: OtherBrokers, Counts: map[outbox.Status]admin.Count{}}
	for i := range foreign[few:] {
		b := &foreign[few+i]
		for status, n := range b.Counts {
			sum := rest.Counts[status]
			rest.Counts[status] = admin.Count{N: sum.N + n.N, More: sum.More || n.More}
		}
		rest.OldestPending, rest.Lag = max(rest.OldestPending, b.OldestPending), max(rest.Lag, b.Lag)
	}
	return append(bounded, rest)
}

func (s *sampler) last() (brokers []admin.BrokerOverview, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.brokers, s.ok
}
