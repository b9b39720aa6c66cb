package monitor

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorm-fanout/fanout/monitor/api"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// DefaultMaxCount is where the counts of a status end unless the caller asks for more.
const DefaultMaxCount = 10_000

// DatabaseStatus is where one database stands.
type DatabaseStatus struct {
	// Err is why the database could not be asked; the rest is empty then.
	Err error
	// Counts by status, of all brokers together.
	Counts map[outbox.Status]admin.Count
	// Brokers sorted by name.
	Brokers []BrokerStatus
	// Relays are the processes that run a relay, oldest first, those that are silent included: these
	// were killed, or do not reach the database.
	Relays []admin.Instance
}

// Silent counts the relays that are silent at a time: for longer than [api.SilentAfter].
func (s *DatabaseStatus) Silent(now time.Time) (n int) {
	for i := range s.Relays {
		if now.Sub(s.Relays[i].SeenAt) > api.SilentAfter {
			n++
		}
	}
	return n
}

// BrokerStatus is where one broker of one database stands.
type BrokerStatus struct {
	admin.BrokerOverview

	// Paused is nil unless an operator has paused the broker.
	Paused *admin.Pause
	// Unknown is true for rows of a broker that the configuration does not have: no processor
	// delivers them.
	Unknown bool
	// NotKept is true where rows of the broker are removed as they are delivered (WithNotKept): its published rows
	// are those of before, and tell nothing of what is delivered now.
	NotKept bool
	// Unavailable is true where a relay that is not silent said in its last heartbeat that the broker is
	// unavailable, and UnavailableDestinations are those of its streams or topics that are, sorted.
	Unavailable             bool
	UnavailableDestinations []string
}

// Status asks all databases at once. It never fails as a whole: a database that cannot be asked
// answers with its error, for itself only. No count goes beyond maxCount; 0 means
// [DefaultMaxCount].
func (c *Console) Status(ctx context.Context, maxCount int) map[string]DatabaseStatus {
	if maxCount < 1 {
		maxCount = DefaultMaxCount
	}
	var (
		mu     sync.Mutex
		group  sync.WaitGroup
		result = map[string]DatabaseStatus{}
	)
	for name := range c.stores() {
		group.Go(func() {
			status, err := ask(ctx, c, name, func(ctx context.Context, store admin.Administration) (DatabaseStatus, error) {
				return c.statusOf(ctx, store, maxCount)
			})
			if err != nil {
				status = DatabaseStatus{Err: err}
			}
			mu.Lock()
			defer mu.Unlock()
			result[name] = status
		})
	}
	group.Wait()
	return result
}

func (c *Console) statusOf(ctx context.Context, store admin.Administration, maxCount int) (DatabaseStatus, error) {
	overview, err := store.Overview(ctx, maxCount)
	if err != nil {
		return DatabaseStatus{}, err
	}
	pauses, err := store.Pauses(ctx)
	if err != nil {
		return DatabaseStatus{}, err
	}
	relays, err := store.Instances(ctx)
	if err != nil {
		return DatabaseStatus{}, err
	}
	status := DatabaseStatus{Counts: counts(nil), Relays: relays}
	for i := range overview {
		overview[i].Counts = counts(overview[i].Counts)
		status.Brokers = append(status.Brokers, BrokerStatus{BrokerOverview: overview[i]})
	}
	named := func(broker string) *BrokerStatus {
		i := slices.IndexFunc(status.Brokers, func(b BrokerStatus) bool { return b.Broker == broker })
		if i < 0 { // without rows, it is shown all the same
			i = len(status.Brokers)
			status.Brokers = append(status.Brokers, BrokerStatus{BrokerOverview: admin.BrokerOverview{Broker: broker, Counts: counts(nil)}})
		}
		return &status.Brokers[i]
	}
	for _, broker := range c.brokers {
		named(broker)
	}
	for i := range pauses {
		named(pauses[i].Broker).Paused = &pauses[i]
	}
	for _, out := range unavailable(relays, time.Now()) {
		if broker := named(out.Broker); out.Destination == "" {
			broker.Unavailable = true
		} else {
			broker.UnavailableDestinations = append(broker.UnavailableDestinations, out.Destination)
		}
	}
	slices.SortFunc(status.Brokers, func(a, b BrokerStatus) int { return strings.Compare(a.Broker, b.Broker) })
	for i := range status.Brokers {
		broker := &status.Brokers[i]
		broker.NotKept = !c.keeps(broker.Broker)
		broker.Unknown = len(c.brokers) > 0 && !slices.Contains(c.brokers, broker.Broker)
		for s, n := range broker.Counts {
			sum := status.Counts[s]
			status.Counts[s] = admin.Count{N: sum.N + n.N, More: sum.More || n.More}
		}
	}
	return status, nil
}

// unavailable lists what relays said that it is unavailable, each once, sorted.
func unavailable(relays []admin.Instance, now time.Time) (list []admin.Unavailable) {
	for i := range relays {
		if now.Sub(relays[i].SeenAt) <= api.SilentAfter {
			list = append(list, relays[i].Unavailable...)
		}
	}
	slices.SortFunc(list, func(a, b admin.Unavailable) int {
		return cmp.Or(strings.Compare(a.Broker, b.Broker), strings.Compare(a.Destination, b.Destination))
	})
	return slices.Compact(list)
}

// counts has an entry for every status.
func counts(some map[outbox.Status]admin.Count) map[outbox.Status]admin.Count {
	all := make(map[outbox.Status]admin.Count, len(outbox.Statuses()))
	for _, s := range outbox.Statuses() {
		all[s] = some[s]
	}
	return all
}

// ping asks all databases at once for something small, and returns the errors of those that did not
// answer. Those that come and go do not count: one of many is no reason to take the process out of
// service.
func (c *Console) ping(ctx context.Context) map[string]error {
	var (
		mu     sync.Mutex
		group  sync.WaitGroup
		failed = map[string]error{}
	)
	for name := range c.fixed {
		group.Go(func() {
			_, err := ask(ctx, c, name, func(ctx context.Context, store admin.Administration) ([]admin.Pause, error) {
				return store.Pauses(ctx)
			})
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed[name] = err
			}
		})
	}
	group.Wait()
	return failed
}
