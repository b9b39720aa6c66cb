package main

import (
	"slices"
	"time"

	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// wireStatus is one database of "status --json".
type wireStatus struct {
	Status  string                       `json:"status"` // ok or error
	Error   string                       `json:"error,omitempty"`
	Counts  map[outbox.Status]int64      `json:"counts,omitempty"`
	Capped  bool                         `json:"capped,omitempty"`
	Brokers map[string]*wireBrokerStatus `json:"brokers,omitempty"`
}

// wireBrokerStatus is one broker of one database.
type wireBrokerStatus struct {
	Counts               map[outbox.Status]int64 `json:"counts"`
	Capped               []outbox.Status         `json:"capped,omitempty"` // counts that stopped there
	Deferred             int64                   `json:"deferred"`
	MoreDeferred         bool                    `json:"more_deferred,omitempty"`
	OldestPendingSeconds float64                 `json:"oldest_pending_seconds"`
	LagSeconds           float64                 `json:"lag_seconds"`
	// RetryRate and PublishedPerSecond are there from the second look on.
	RetryRate              *float64   `json:"retry_rate,omitempty"`
	PublishedPerSecond     *float64   `json:"published_per_second,omitempty"`
	MorePublishedPerSecond bool       `json:"more_published_per_second,omitempty"`
	Paused                 *wirePause `json:"paused"`
	LastPublished          *time.Time `json:"last_published,omitempty"`
	LastError              *wireError `json:"last_error,omitempty"`
	// Unknown is true for open rows of a broker that the configuration does not have: nobody delivers them.
	Unknown bool `json:"unknown,omitempty"`
}

// wirePause is why nothing is delivered to a broker.
type wirePause struct {
	Since  time.Time `json:"since"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

func toStatus(status map[string]monitor.DatabaseStatus, rated map[spot]rates) map[string]wireStatus {
	answer := make(map[string]wireStatus, len(status))
	for name, database := range status {
		if database.Err != nil {
			answer[name] = wireStatus{Status: "error", Error: database.Err.Error()}
			continue
		}
		line := wireStatus{Status: "ok", Brokers: map[string]*wireBrokerStatus{}}
		var capped []outbox.Status
		line.Counts, capped = toCounts(database.Counts)
		line.Capped = len(capped) > 0
		for i := range database.Brokers {
			b := &database.Brokers[i]
			line.Brokers[b.Broker] = toBrokerStatus(b)
			if r, ok := rated[spot{name, b.Broker}]; ok {
				line.Brokers[b.Broker].rate(r)
			}
		}
		answer[name] = line
	}
	return answer
}

func toBrokerStatus(b *monitor.BrokerStatus) *wireBrokerStatus {
	line := &wireBrokerStatus{
		Deferred: b.Deferred.N, MoreDeferred: b.Deferred.More, OldestPendingSeconds: seconds(b.OldestPending), LagSeconds: seconds(b.Lag),
		LastPublished: toTime(b.LastPublished), LastError: toError(b.LastError), Unknown: stray(b),
	}
	line.Counts, line.Capped = toCounts(b.Counts)
	if p := b.Paused; p != nil {
		line.Paused = &wirePause{Since: p.Since.UTC(), By: p.By, Reason: p.Reason}
	}
	return line
}

func (w *wireBrokerStatus) rate(r rates) {
	w.PublishedPerSecond, w.MorePublishedPerSecond = &r.Published, r.Atleast
	if r.Known {
		w.RetryRate = &r.Retry
	}
}

// toCounts tells numbers from those that are at least that.
func toCounts(counts map[outbox.Status]admin.Count) (numbers map[outbox.Status]int64, capped []outbox.Status) {
	numbers = make(map[outbox.Status]int64, len(counts))
	for s, n := range counts {
		numbers[s] = n.N
		if n.More {
			capped = append(capped, s)
		}
	}
	slices.Sort(capped)
	return numbers, capped
}
