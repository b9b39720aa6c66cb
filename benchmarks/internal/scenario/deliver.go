package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// meter is a store that counts round trips and notes the exchanges.
type meter struct {
	driver.Store

	trips     atomic.Int64
	completed atomic.Int64

	mu   sync.Mutex
	laps []lap
}

// lap is an exchange that claimed something.
type lap struct {
	began time.Time
	took  time.Duration
	rows  int
}

// Exchange implements driver.Delivery.
func (m *meter) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	m.trips.Add(1)
	began := time.Now()
	exchanged, err := m.Store.Exchange(ctx, completion, claim)
	if exchanged.Completed != nil {
		m.completed.Add(int64(len(completion.Published) - exchanged.Completed.Lost))
	}
	if rows := len(exchanged.Batch.Messages); rows > 0 {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.laps = append(m.laps, lap{began, time.Since(began), rows})
	}
	return exchanged, err
}

// Ready implements driver.Delivery.
func (m *meter) Ready(ctx context.Context, broker string, busy wakeup.Set) (driver.Readiness, error) {
	m.trips.Add(1)
	return m.Store.Ready(ctx, broker, busy)
}

// between returns the times of the exchanges that began and ended in a span, and the rows that they
// claimed.
func (m *meter) between(from, to time.Time) (times []time.Duration, rows int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, lap := range m.laps {
		if !lap.began.Before(from) && !lap.began.Add(lap.took).After(to) {
			times = append(times, lap.took)
			rows += lap.rows
		}
	}
	return times, rows
}

// drained waits until so many rows are completed.
func (m *meter) drained(ctx context.Context, rows int) error {
	return await(ctx, func() int { return int(m.completed.Load()) }, rows)
}

const (
	// patience is how long anything may take.
	patience = 10 * time.Minute
	// glance is the time between two looks at a counter of this process.
	glance = time.Millisecond
)

// await waits until a counter has come to a value.
func await(ctx context.Context, counter func() int, want int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("scenario: it took longer than %s", patience))
	defer cancel()
	ticker := time.NewTicker(glance)
	defer ticker.Stop()
	for counter() < want {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d messages: %w", counter(), want, context.Cause(ctx))
		}
	}
	return nil
}

// deliver runs an engine until f returns.
func deliver(ctx context.Context, store driver.Store, targets map[string]relay.Target, f func(context.Context, *relay.Engine) error) error {
	engine, err := relay.NewEngine(relay.EngineConfig{
		Stores: map[string]driver.Delivery{"bench": store}, Brokers: targets, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	var group errgroup.Group
	group.Go(func() error { return engine.Run(running) })
	err = f(ctx, engine)
	stop()
	return errors.Join(err, group.Wait())
}

// rig is an outbox with brokers in memory.
type rig struct {
	*fixture.Table
	*meter

	options   *Options
	targets   map[string]relay.Target
	engine    *relay.Engine // while it delivers
	recorders []*recorder   // of the brokers, in their order
}

// setting says what a rig consists of.
type setting struct {
	dialect     outbox.Dialect
	connections int
	// brokers by name, each with a recorder. Default: one broker.
	brokers []string
	policy  outbox.Policy
	// refuse, which may be nil, tells which messages fail.
	refuse func(m *brokers.Message) bool
	// fills are written first.
	fills []fixture.Fill
}

// withRig runs f with a rig.
func (o *Options) withRig(ctx context.Context, s setting, f func(context.Context, *rig) error) error {
	return o.withTable(ctx, s.dialect, cmp.Or(s.connections, outbox.Shards+2), func(table *fixture.Table) error {
		r := &rig{Table: table, meter: &meter{Store: table.Store}, options: o, targets: map[string]relay.Target{}}
		if s.brokers == nil {
			s.brokers = []string{broker}
		}
		for _, name := range s.brokers {
			target := &recorder{refuse: s.refuse}
			r.recorders, r.targets[name] = append(r.recorders, target), relay.Target{Broker: target, Policy: s.policy}
		}
		for _, fill := range s.fills {
			if err := r.fill(ctx, fill); err != nil {
				return err
			}
		}
		if err := table.Settle(ctx, o.Log); err != nil {
			return err
		}
		return f(ctx, r)
	})
}

// deliver runs an engine until f returns.
func (r *rig) deliver(ctx context.Context, f func(context.Context) error) error {
	return deliver(ctx, r.meter, r.targets, func(ctx context.Context, engine *relay.Engine) error {
		r.engine = engine
		return f(ctx)
	})
}

// fill writes rows, of the only broker if the fill names none.
func (r *rig) fill(ctx context.Context, fill fixture.Fill) error {
	if fill.Brokers == nil {
		fill.Brokers = []string{broker}
	}
	fill.Stream, fill.Seed = "s", r.options.Seed
	return r.Fill(ctx, r.options.Log, fill)
}

// count is the number of messages that all recorders have.
func (r *rig) count() (n int) {
	for _, target := range r.recorders {
		n += len(target.noted())
	}
	return n
}

// latencies are the times from the commits to the arrivals.
func (r *rig) latencies(commits map[int64]time.Time) (times []time.Duration) {
	for _, target := range r.recorders {
		for _, a := range target.noted() {
			if at, found := commits[a.number]; found {
				times = append(times, max(0, a.at.Sub(at))) // a poll may find a row before its writer has the answer
			}
		}
	}
	return times
}

// shortestTick is the shortest time between two transactions of the traffic.
const shortestTick = 20 * time.Millisecond

// write writes so many events per second for a while, and wakes the engine after each commit. It
// returns when each event was committed, by its number.
func (r *rig) write(ctx context.Context, fill fixture.Fill, rate int, span time.Duration) (map[int64]time.Time, error) {
	ticker := time.NewTicker(max(shortestTick, time.Second/time.Duration(rate)))
	defer ticker.Stop()
	began, total, written := time.Now(), max(1, int(span.Seconds()*float64(rate))), 0
	commits := make(map[int64]time.Time, total)
	for written < total {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-ticker.C:
		}
		first := r.Next()
		fill.Events = max(1, min(total, int(time.Since(began).Seconds()*float64(rate)))-written) // late ticks are made up for
		if err := r.fill(ctx, fill); err != nil {
			return nil, err
		}
		committed := time.Now()
		r.engine.Wake("bench")
		for number := first; number < r.Next(); number++ {
			commits[number] = committed
		}
		written += fill.Events
	}
	return commits, nil
}

// recorder is a broker that confirms at once and notes the messages, so that only the outbox costs
// anything.
type recorder struct {
	// refuse, which may be nil, tells which messages fail.
	refuse func(m *brokers.Message) bool

	mu       sync.Mutex
	arrivals []arrival
}

// arrival is a message that reached a broker.
type arrival struct {
	number int64
	key    string
	at     time.Time
}

var errFails = brokers.Retryable(errors.New("scenario: this message fails"))

// Publish implements brokers.Broker.
func (r *recorder) Publish(_ context.Context, messages []brokers.Message) []brokers.Result {
	results, at := make([]brokers.Result, len(messages)), time.Now()
	failed := map[string]bool{}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range messages {
		m := &messages[i]
		switch {
		case m.OrderingKey != "" && failed[m.OrderingKey]:
			results[i].Err = brokers.ErrNotSent
		case r.refuse != nil && r.refuse(m):
			results[i].Err, failed[m.OrderingKey] = errFails, true
		default:
			number, err := fixture.Number(m.ID)
			results[i].BrokerMessageID, results[i].Err = "1780000000000-0", err // as long as those of Redis
			r.arrivals = append(r.arrivals, arrival{number, m.OrderingKey, at})
		}
	}
	return results
}

// Capabilities implements brokers.Broker.
func (*recorder) Capabilities() brokers.Capabilities { return brokers.Capabilities{Ordering: true} }

// Ping implements brokers.Broker.
func (*recorder) Ping(context.Context) error { return nil }

// Close implements brokers.Broker.
func (*recorder) Close(context.Context) error { return nil }

// noted returns the messages so far.
func (r *recorder) noted() []arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clip(r.arrivals)
}

// check fails unless the messages are those of n numbers from one on, each of them once and, if
// they were sent in order, behind the earlier ones of its key.
func check(arrivals []arrival, from int64, n int, ordered bool) error {
	seen, last := make(map[int64]bool, n), map[string]int64{}
	for _, a := range arrivals {
		switch {
		case a.number < from || a.number >= from+int64(n):
			return fmt.Errorf("scenario: message %d was never written", a.number)
		case seen[a.number]:
			return fmt.Errorf("scenario: message %d arrived twice", a.number)
		case ordered && a.key != "" && a.number < last[a.key]:
			return fmt.Errorf("scenario: message %d of key %s arrived behind message %d", a.number, a.key, last[a.key])
		}
		seen[a.number], last[a.key] = true, a.number
	}
	if len(seen) != n {
		return fmt.Errorf("scenario: %d of %d messages arrived", len(seen), n)
	}
	return nil
}
