package otelrelay

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/gorm-fanout/fanout/internal/instrument"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// Sources are what gauges are read from on collection.
type Sources struct {
	// Stats returns the statistics of the processors, as relay.Engine.Stats does. Nil: there are
	// none.
	Stats func() []relay.Stats
	// Databases are queried for the state of their brokers, at most once in ten seconds and never
	// twice at a time.
	Databases map[string]admin.Administration
	// More returns databases that come and go, by their names; it is called on each collection. Their
	// series of fanout.outbox.database.up have the attribute tenant. Nil: there are none.
	More func() map[string]admin.Administration
	// Tenants counts the tenants by state. Nil: there are none.
	Tenants func() map[string]int
	// Brokers of the configuration always have their own series. Of the unconfigured brokers that
	// have rows, the first 20 by name have their own; the others are summed up as [OtherBrokers].
	// Default: none is configured.
	Brokers []string
	// Log gets a warning when brokers are summed up. Default: slog.Default().
	Log *slog.Logger
}

// OtherBrokers is the label of the sum over unconfigured brokers beyond the first 20. It is not a
// valid broker name in a configuration.
const OtherBrokers = "(others)"

const (
	// sampleEvery is the minimum time between two queries to a database.
	sampleEvery = 10 * time.Second
	// sampleTime bounds one query, so that a database that hangs does not delay the other figures.
	sampleTime = 3 * time.Second
	// countLimit caps the counts of rows. It is above the thresholds of the shipped alerts.
	countLimit = 20_000
	// foreignLimit bounds the series of unconfigured brokers of one database: whoever can write
	// rows chooses their names.
	foreignLimit = 20
)

type gauges struct {
	pending, processing, failed, abandoned, unacknowledged, scheduled, held, blocked metric.Int64ObservableGauge
	leases, breaker, destinations, paused, listener, stranded, up                    metric.Int64ObservableGauge
	tenants                                                                          metric.Int64ObservableGauge
	oldest, lag                                                                      metric.Float64ObservableGauge
}

// Watch connects the gauges to the sources until stop is called. Call it once per process, unless
// the databases differ: each call queries its databases separately.
func (m *Metrics) Watch(sources Sources) (stop func() error, err error) {
	maker := &instrument.Maker{Meter: m.meter}
	g := gauges{
		pending:    maker.Gauge("fanout.outbox.rows.pending", "{message}", "Rows that wait for their first attempt, up to a cap."),
		processing: maker.Gauge("fanout.outbox.rows.processing", "{message}", "Claimed rows, up to a cap."),
		failed:     maker.Gauge("fanout.outbox.rows.failed", "{message}", "Rows that wait for another attempt, up to a cap."),
		abandoned:  maker.Gauge("fanout.outbox.rows.abandoned", "{message}", "Abandoned rows that were not purged yet, up to a cap."),
		unacknowledged: maker.Gauge("fanout.outbox.rows.unacknowledged", "{message}",
			"Abandoned rows that no operator has acknowledged, up to a cap."),
		scheduled: maker.Gauge("fanout.outbox.rows.scheduled", "{message}",
			"Rows that are not to be sent before a time that lies ahead, up to a cap."),
		held:    maker.Gauge("fanout.outbox.rows.held", "{message}", "Rows behind the abandoned row for which their key waits, up to a cap."),
		blocked: maker.Gauge("fanout.outbox.keys.blocked", "{key}", "Ordering keys that wait for an operator (on_abandon: block), up to a cap."),
		oldest:  maker.SecondsGauge("fanout.outbox.oldest.age", "Age of the oldest row that is not finished; 0 where there is none."),
		lag:     maker.SecondsGauge("fanout.outbox.lag", "How long the first rows that are due have been waiting."),
		up:      maker.Gauge("fanout.outbox.database.up", "{database}", "1 when the database answered the last query for the state of its brokers, 0 when it did not."),
		leases:  maker.Gauge("fanout.outbox.leases.active", "{batch}", "Batches that this process has claimed."),
		breaker: maker.Gauge("fanout.outbox.breaker.state", "{state}", "0 closed: messages are sent; 1 half-open: a few are, to try; 2 open: none is."),
		destinations: maker.Gauge("fanout.outbox.destinations.unavailable", "{destination}",
			"Streams or topics of a broker that messages wait for."),
		stranded: maker.Gauge("fanout.outbox.rows.stranded", "{message}",
			"Open rows that no rule can ever make due, as far as this process has found."),
		paused:  maker.Gauge("fanout.outbox.broker.paused", "{broker}", "1 while an operator has paused the broker."),
		tenants: maker.Gauge("fanout.outbox.tenants", "{tenant}", "Tenants of this process by state: asleep, awake, waiting, failing."),
		listener: maker.Gauge("fanout.outbox.listener.up", "{listener}",
			"1 while the listener is connected, 0 while this process polls instead; absent where there is no listener."),
	}
	if err := maker.Err(); err != nil {
		return nil, fmt.Errorf("otelrelay: %w", err)
	}
	databases := &samplers{sources: &sources, known: map[string]*sampler{}}
	registration, err := m.meter.RegisterCallback(func(ctx context.Context, to metric.Observer) error {
		if sources.Stats != nil {
			for _, stats := range sources.Stats() {
				g.observeStats(to, &stats)
			}
		}
		if sources.Tenants != nil {
			for state, n := range sources.Tenants() {
				to.ObserveInt64(g.tenants, int64(n), metric.WithAttributes(attributeState.String(state)))
			}
		}
		samplers := databases.now()
		var group sync.WaitGroup
		for _, s := range samplers {
			group.Go(func() { s.sample(ctx) })
		}
		group.Wait()
		for _, s := range samplers {
			g.observeSample(to, s)
		}
		return nil
	}, maker.Gauges()...)
	if err != nil {
		return nil, fmt.Errorf("otelrelay: %w", err)
	}
	return registration.Unregister, nil
}

const (
	// attributeState is that of a tenant.
	attributeState = attribute.Key("state")
	// attributeTenant is true for the database of a tenant, and absent for those of the configuration.
	attributeTenant = attribute.Key("tenant")
)

// samplers are those of all databases that there are.
type samplers struct {
	sources *Sources

	mu    sync.Mutex
	known map[string]*sampler
}

// now makes a sampler for each database that has come, and forgets those that have gone.
func (s *samplers) now() []*sampler {
	s.mu.Lock()
	defer s.mu.Unlock()
	stores := s.sources.Databases
	if s.sources.More != nil {
		stores = s.sources.More()
		maps.Copy(stores, s.sources.Databases)
	}
	list := make([]*sampler, 0, len(stores))
	for name, store := range stores {
		known, ok := s.known[name]
		if !ok || known.store != store {
			known = &sampler{database: name, store: store, configured: s.sources.Brokers, log: cmp.Or(s.sources.Log, slog.Default())}
			_, listed := s.sources.Databases[name]
			known.tenant = !listed
			s.known[name] = known
		}
		list = append(list, known)
	}
	maps.DeleteFunc(s.known, func(name string, _ *sampler) bool { return stores[name] == nil })
	return list
}

func (g *gauges) observeStats(to metric.Observer, stats *relay.Stats) {
	here := metric.WithAttributes(AttributeDatabase.String(stats.Database), AttributeBroker.String(stats.Broker))
	to.ObserveInt64(g.leases, int64(stats.Leases), here)
	to.ObserveInt64(g.breaker, breakerLevels[stats.Breaker], here)
	to.ObserveInt64(g.destinations, int64(len(stats.UnavailableDestinations)), here)
	to.ObserveInt64(g.paused, yes(stats.Paused), here)
	to.ObserveInt64(g.stranded, stats.Stranded, here)
	if stats.Listener != relay.ListenerOff {
		to.ObserveInt64(g.listener, yes(stats.Listener == relay.ListenerConnected), here)
	}
}

func (g *gauges) observeSample(to metric.Observer, s *sampler) {
	brokers, ok := s.last()
	here := []attribute.KeyValue{AttributeDatabase.String(s.database)}
	if s.tenant { // its series ends when it falls asleep, which is no fault: the alerts tell it by this
		here = append(here, attributeTenant.Bool(true))
	}
	to.ObserveInt64(g.up, yes(ok), metric.WithAttributes(here...))
	for i := range brokers {
		b := &brokers[i]
		here := metric.WithAttributes(AttributeDatabase.String(s.database), AttributeBroker.String(b.Broker))
		to.ObserveInt64(g.pending, b.Counts[outbox.StatusPending].N, here)
		to.ObserveInt64(g.processing, b.Counts[outbox.StatusProcessing].N, here)
		to.ObserveInt64(g.failed, b.Counts[outbox.StatusFailed].N, here)
		to.ObserveInt64(g.abandoned, b.Counts[outbox.StatusAbandoned].N, here)
		to.ObserveInt64(g.unacknowledged, b.Unacknowledged.N, here)
		to.ObserveInt64(g.scheduled, b.Scheduled.N, here)
		to.ObserveInt64(g.held, b.Held.N, here)
		to.ObserveInt64(g.blocked, b.BlockedKeys.N, here)
		to.ObserveFloat64(g.oldest, b.OldestPending.Seconds(), here)
		to.ObserveFloat64(g.lag, b.Lag.Seconds(), here)
	}
}

var breakerLevels = map[relay.BreakerState]int64{relay.BreakerClosed: 0, relay.BreakerHalfOpen: 1, relay.BreakerOpen: 2}

func yes(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// sampler remembers the state of the brokers of one database.
type sampler struct {
	database   string
	tenant     bool // it comes and goes
	store      admin.Administration
	configured []string
	log        *slog.Logger

	mu      sync.Mutex
	asked   time.Time
	brokers []admin.BrokerOverview // nil where the database did not answer: old figures would look current
	ok      bool
	warned  bool // that brokers are summed up
}

// sample queries the database unless the last answer is recent. Concurrent collections wait for the
// same answer.
func (s *sampler) sample(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked.IsZero() && time.Since(s.asked) < sampleEvery {
		return
	}
	s.asked = time.Now()
	ctx, cancel := context.WithTimeout(ctx, sampleTime)
	defer cancel()
	brokers, err := s.store.Overview(ctx, countLimit)
	s.ok = err == nil
	s.brokers = nil
	if err == nil {
		s.brokers = s.bound(ctx, brokers)
	}
}

// bound keeps all configured brokers and the first others by name, and sums up the rest.
func (s *sampler) bound(ctx context.Context, all []admin.BrokerOverview) []admin.BrokerOverview {
	var known, foreign []admin.BrokerOverview
	for i := range all {
		if slices.Contains(s.configured, all[i].Broker) {
			known = append(known, all[i])
		} else {
			foreign = append(foreign, all[i])
		}
	}
	for _, name := range s.configured { // one that has no rows has gauges all the same, whatever the store lists
		if !slices.ContainsFunc(known, func(b admin.BrokerOverview) bool { return b.Broker == name }) {
			known = append(known, admin.BrokerOverview{Broker: name})
		}
	}
	slices.SortFunc(foreign, func(a, b admin.BrokerOverview) int {
		if last := a.Broker == OtherBrokers; last != (b.Broker == OtherBrokers) { // a broker of this name in the rows belongs to the sum
			return map[bool]int{true: 1, false: -1}[last]
		}
		return strings.Compare(a.Broker, b.Broker)
	})
	few := min(len(foreign), foreignLimit)
	bounded := slices.Concat(known, foreign[:few])
	if len(foreign) == few {
		s.warned = false
		return bounded
	}
	if !s.warned {
		s.warned = true
		s.log.WarnContext(ctx, "metrics of unconfigured brokers summed up", "database", s.database, "brokers", len(foreign), "label", OtherBrokers)
	}
	rest := admin.BrokerOverview{Broker: OtherBrokers, Counts: map[outbox.Status]admin.Count{}}
	for i := range foreign[few:] {
		b := &foreign[few+i]
		for status, n := range b.Counts {
			sum := rest.Counts[status]
			rest.Counts[status] = admin.Count{N: sum.N + n.N, More: sum.More || n.More}
		}
		for _, part := range []struct{ sum, n *admin.Count }{
			{&rest.BlockedKeys, &b.BlockedKeys}, {&rest.Held, &b.Held}, {&rest.Scheduled, &b.Scheduled}, {&rest.Unacknowledged, &b.Unacknowledged},
		} {
			*part.sum = admin.Count{N: part.sum.N + part.n.N, More: part.sum.More || part.n.More}
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
