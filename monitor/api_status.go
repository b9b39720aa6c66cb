package monitor

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/gorm-fanout/fanout/internal/discreet"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// databaseAnswer is one database of GET /api/outbox.
type databaseAnswer struct {
	Status  string                  `json:"status"` // ok or error
	Error   string                  `json:"error,omitempty"`
	Counts  map[outbox.Status]int64 `json:"counts,omitempty"`
	Capped  bool                    `json:"capped,omitempty"`
	Brokers map[string]brokerAnswer `json:"brokers,omitempty"`
}

// brokerAnswer is one broker of a database. What only the engine knows is null where none runs in this process.
type brokerAnswer struct {
	Counts                  map[outbox.Status]int64 `json:"counts"`
	Capped                  []outbox.Status         `json:"capped"`
	Deferred                int64                   `json:"deferred"`
	DeferredMore            bool                    `json:"deferred_more,omitempty"`
	OldestPendingSeconds    float64                 `json:"oldest_pending_seconds"`
	LagSeconds              float64                 `json:"lag_seconds"`
	RetryRate               *float64                `json:"retry_rate"`
	PublishedPerSecond      *float64                `json:"published_per_second"`
	Breaker                 relay.BreakerState      `json:"breaker,omitempty"`
	UnavailableDestinations []string                `json:"unavailable_destinations"`
	Paused                  *pauseAnswer            `json:"paused"`
	LastPublished           *time.Time              `json:"last_published,omitempty"`
	LastError               *outbox.LastError       `json:"last_error,omitempty"`
	Listener                relay.ListenerState     `json:"listener"`
	Unknown                 bool                    `json:"unknown"`
}

type pauseAnswer struct {
	Since  time.Time `json:"since"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
}

func (h *Handler) getStatus(w http.ResponseWriter, q *request) error {
	h.history.watched(h.now())
	status := h.status(q.Context())
	stats := h.stats()
	result := make(map[string]databaseAnswer, len(status))
	for name, database := range status {
		if database.Err != nil {
			result[name] = databaseAnswer{Status: "error", Error: discreet.Text(database.Err.Error())}
			continue
		}
		one := databaseAnswer{Status: "ok", Counts: map[outbox.Status]int64{}, Brokers: map[string]brokerAnswer{}}
		for s, n := range database.Counts {
			one.Counts[s] = n.N
			one.Capped = one.Capped || n.More
		}
		for i := range database.Brokers {
			broker := &database.Brokers[i]
			one.Brokers[broker.Broker] = h.brokerAnswer(name, broker, stats[series{name, broker.Broker}])
		}
		result[name] = one
	}
	return answer(w, result)
}

func (h *Handler) brokerAnswer(database string, b *BrokerStatus, stats *relay.Stats) brokerAnswer {
	a := brokerAnswer{
		Counts: map[outbox.Status]int64{}, Capped: []outbox.Status{}, Deferred: b.Deferred.N, DeferredMore: b.Deferred.More,
		OldestPendingSeconds: b.OldestPending.Seconds(), LagSeconds: b.Lag.Seconds(), UnavailableDestinations: []string{},
		LastPublished: some(b.LastPublished), LastError: b.LastError, Unknown: b.Unknown,
	}
	for _, s := range outbox.Statuses() {
		a.Counts[s] = b.Counts[s].N
		if b.Counts[s].More {
			a.Capped = append(a.Capped, s)
		}
	}
	if b.Paused != nil {
		a.Paused = &pauseAnswer{Since: b.Paused.Since, By: b.Paused.By, Reason: b.Paused.Reason}
	}
	if stats != nil {
		a.Breaker, a.Listener = stats.Breaker, stats.Listener
		a.UnavailableDestinations = append(a.UnavailableDestinations, stats.UnavailableDestinations...)
	}
	a.PublishedPerSecond, a.RetryRate = h.history.rates(series{database, b.Broker})
	return a
}

// statusTime is how long a database may keep those who look waiting for the others.
const statusTime = 5 * time.Second

// status asks the databases, no more often than once a second.
func (h *Handler) status(ctx context.Context) map[string]DatabaseStatus {
	return h.latest.get(ctx, h.now, func(ctx context.Context) map[string]DatabaseStatus {
		ctx, cancel := context.WithTimeout(ctx, statusTime)
		defer cancel()
		return h.console.Status(ctx, h.cfg.MaxCount)
	})
}

// stats are the counters of the engine in this process.
func (h *Handler) stats() map[series]*relay.Stats {
	all := map[series]*relay.Stats{}
	if h.cfg.Stats != nil {
		stats := h.cfg.Stats()
		for i := range stats {
			all[series{stats[i].Database, stats[i].Broker}] = &stats[i]
		}
	}
	return all
}

// some is nil for the zero time.
func some(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	at = at.UTC()
	return &at
}

func (h *Handler) getHealth(w http.ResponseWriter, _ *request) error {
	return answer(w, map[string]string{"status": "ok"})
}

// readyAnswer says whether this process does its work.
type readyAnswer struct {
	Status  string   `json:"status"` // ok or unavailable
	Reasons []string `json:"reasons"`
}

// readyTime is how long a database may take to show that it is there.
const readyTime = 3 * time.Second

// getReady is for probes, which have no token: it says which database does not answer, and nothing about why.
func (h *Handler) getReady(w http.ResponseWriter, q *request) error {
	reasons := h.ready.get(q.Context(), h.now, func(ctx context.Context) []string {
		ctx, cancel := context.WithTimeout(ctx, readyTime)
		defer cancel()
		reasons := []string{}
		failed := h.console.ping(ctx)
		for _, name := range slices.Sorted(maps.Keys(failed)) {
			reasons = append(reasons, "database "+name+" does not answer")
		}
		return reasons
	})
	if h.cfg.Running != nil && !h.cfg.Running() {
		reasons = append(slices.Clone(reasons), "the engine does not run")
	}
	if len(reasons) > 0 {
		write(w, http.StatusServiceUnavailable, "application/json", readyAnswer{Status: "unavailable", Reasons: reasons})
		return nil
	}
	return answer(w, readyAnswer{Status: "ok", Reasons: reasons})
}
