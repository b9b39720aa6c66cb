package monitor

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/gorm-fanout/fanout/internal/discreet"
	"github.com/gorm-fanout/fanout/monitor/api"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// brokerAnswer adds what only an engine in this process knows.
type brokerAnswer struct {
	api.Broker

	Breaker                 relay.BreakerState  `json:"breaker,omitempty"`
	UnavailableDestinations []string            `json:"unavailable_destinations"`
	Listener                relay.ListenerState `json:"listener"`
}

type databaseAnswer = api.Database[brokerAnswer]

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
		one := api.NewDatabase[brokerAnswer](database.Counts)
		silent := database.Silent(h.now())
		one.Relays, one.SilentRelays = len(database.Relays)-silent, silent
		for i := range database.Brokers {
			broker := &database.Brokers[i]
			one.Brokers[broker.Broker] = h.brokerAnswer(name, broker, stats[series{name, broker.Broker}])
		}
		result[name] = one
	}
	return answer(w, result)
}

func (h *Handler) brokerAnswer(database string, b *BrokerStatus, stats *relay.Stats) brokerAnswer {
	a := brokerAnswer{Broker: api.NewBroker(&b.BrokerOverview, b.Paused, b.Unknown), UnavailableDestinations: []string{}}
	a.NotKept = b.NotKept
	if stats == nil { // no relay in this process: what others said in their heartbeats
		a.UnavailableDestinations = append(a.UnavailableDestinations, b.UnavailableDestinations...)
		if b.Unavailable {
			a.Breaker = relay.BreakerOpen
		}
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

// getReady is for probes, which have no token: it says which database does not answer, and nothing
// about why.
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
