package admin

import (
	"maps"
	"slices"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
)

// A Tally gathers counts per broker and status; stores fill it from their query. It is not safe for
// concurrent use.
type Tally map[string]*BrokerCounts

// Add records n rows of one status, the oldest of which has the given age.
func (t Tally) Add(broker string, status outbox.Status, n int64, oldest time.Duration) {
	entry := t.entry(broker)
	entry.Counts[status] += n
	if !status.Terminal() && n > 0 {
		entry.OldestPending = max(entry.OldestPending, oldest)
	}
}

// SetLastError records the last error of a broker.
func (t Tally) SetLastError(broker, lastError string) { t.entry(broker).LastError = lastError }

// Brokers returns the entries sorted by name. Every status has a count, be it 0.
func (t Tally) Brokers() []BrokerCounts {
	brokers := make([]BrokerCounts, 0, len(t))
	for _, name := range slices.Sorted(maps.Keys(t)) {
		brokers = append(brokers, *t[name])
	}
	return brokers
}

func (t Tally) entry(broker string) *BrokerCounts {
	entry := t[broker]
	if entry == nil {
		entry = &BrokerCounts{Broker: broker, Counts: make(map[outbox.Status]int64, len(outbox.Statuses()))}
		for _, status := range outbox.Statuses() {
			entry.Counts[status] = 0
		}
		t[broker] = entry
	}
	return entry
}
