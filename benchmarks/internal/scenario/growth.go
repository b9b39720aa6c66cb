package scenario

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

const mebibyte = 1 << 20

// cost is what some work has taken.
type cost struct {
	took, cpu, server time.Duration
	observed          bool // server is known; short work may still take none, as processor time is counted in ticks
	wal               int64
}

func (c *cost) add(other cost) {
	c.took += other.took
	c.cpu += other.cpu
	c.server += other.server
	c.observed = c.observed || other.observed
	c.wal += other.wal
}

// spend measures what f takes.
func spend(ctx context.Context, database *fixture.Database, f func() error) (c cost, err error) {
	runtime.GC()
	walBefore, err := database.WAL(ctx)
	if err != nil {
		return c, err
	}
	serverBefore, _, err := database.ServerCPU(ctx)
	if err != nil {
		return c, err
	}
	cpuBefore, _ := fixture.CPU()
	began := time.Now()
	if err := f(); err != nil {
		return c, err
	}
	c.took = time.Since(began)
	cpuAfter, _ := fixture.CPU()
	serverAfter, observed, err := database.ServerCPU(ctx)
	if err != nil {
		return c, err
	}
	c.observed = observed
	walAfter, err := database.WAL(ctx)
	c.cpu, c.server, c.wal = cpuAfter-cpuBefore, serverAfter-serverBefore, walAfter-walBefore
	return c, err
}

// report notes processor time and log for each of n things.
func (c *cost) report(s *report.Scenario, of, thing string, n int64) {
	if c.cpu > 0 {
		s.Add(of, "CPU of the process", "µs/"+thing, float64(c.cpu.Microseconds())/float64(n))
	}
	if c.observed {
		s.Add(of, "CPU of the database", "µs/"+thing, float64(c.server.Microseconds())/float64(n))
	}
	s.Add(of, "log", "B/"+thing, float64(c.wal)/float64(n))
}

// turns decides in which order cases have their turn.
func (o *Options) turns(run int) *rand.Rand {
	return rand.New(rand.NewPCG(o.Seed, uint64(run))) //nolint:gosec // not negative
}

// withStreams runs f with streams of its own, which are deleted afterwards.
func (o *Options) withStreams(ctx context.Context, f func(*fixture.Streams) error) (err error) {
	streams, err := fixture.OpenStreams(ctx, o.Redis)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, streams.Close()) }() //nolint:contextcheck // the context may be what has ended
	if o.Report.Servers["Redis"], err = streams.Version(ctx); err != nil {
		return err
	}
	return f(streams)
}

// redisTargets opens a client for each of the brokers. The caller closes them.
func redisTargets(server string, names []string, policy outbox.Policy, settings redisstreams.Settings) (
	targets map[string]relay.Target, closeAll func(context.Context) error, err error,
) {
	targets = make(map[string]relay.Target, len(names))
	closeAll = func(ctx context.Context) (err error) {
		for _, target := range targets {
			err = errors.Join(err, target.Broker.Close(context.WithoutCancel(ctx)))
		}
		return err
	}
	for _, name := range names {
		settings.URL = adapter.Secret(server)
		broker, err := redisstreams.Open(settings)
		if err != nil {
			return nil, nil, err
		}
		targets[name] = relay.Target{Broker: broker, Policy: policy}
	}
	return targets, closeAll, nil
}

// deliverAll runs an engine until so many rows are completed, where that is not 0, and until beside
// is done, which may be nil and begins with it.
func deliverAll(ctx context.Context, store driver.Store, rows int64, targets map[string]relay.Target, beside func(context.Context, *relay.Engine) error) error {
	counted := &tally{Store: store, rows: rows, done: make(chan struct{})}
	engine, err := relay.NewEngine(relay.EngineConfig{
		Stores: map[string]driver.Delivery{"bench": counted}, Brokers: targets, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	var delivery errgroup.Group
	delivery.Go(func() error { return engine.Run(running) })
	work, working := errgroup.WithContext(ctx)
	if rows > 0 {
		work.Go(func() error { return counted.await(working) })
	}
	if beside != nil {
		work.Go(func() error { return beside(working, engine) })
	}
	err = work.Wait()
	stop()
	return errors.Join(err, delivery.Wait())
}

// await waits until all rows are completed.
func (t *tally) await(ctx context.Context) error {
	patience := time.NewTimer(drainPatience)
	defer patience.Stop()
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-patience.C:
		return fmt.Errorf("scenario: %d of %d rows were completed in %s", t.completed.Load(), t.rows, drainPatience)
	}
}

// streamPrefix reserves a stream for each broker, and returns what all their names begin with.
func streamPrefix(streams *fixture.Streams, name string, brokers []string) (prefix string) {
	for _, broker := range brokers {
		prefix = strings.TrimSuffix(streams.New(name+":"+broker), broker)
	}
	return prefix
}

// inStream looks whether a broker's stream holds each of its messages exactly once, in the order of
// their keys.
func inStream(ctx context.Context, streams *fixture.Streams, stream string, table *fixture.Table, broker string) error {
	keys, err := table.KeysOf(ctx, broker)
	if err != nil {
		return err
	}
	a := arrivals{
		setup: &setup{contest: &contest{ordered: true}}, keys: keys, seen: make(map[uuid.UUID]bool, len(keys)), last: map[string]int64{},
	}
	if err := streams.Each(ctx, stream, "id", a.add); err != nil {
		return fmt.Errorf("broker %s: %w", broker, err)
	}
	if len(a.seen) != len(keys) {
		return fmt.Errorf("scenario: %d of %d messages are in the stream of broker %s", len(a.seen), len(keys), broker)
	}
	return nil
}

// allPublished fails unless the table has so many rows, all published.
func allPublished(ctx context.Context, table *fixture.Table, rows int64) error {
	published, err := table.Count(ctx, outbox.StatusPublished)
	if err != nil {
		return err
	}
	all, err := fixture.Get[int64](ctx, table, "SELECT count(*) FROM {{table}}")
	if err == nil && (published != rows || all != rows) {
		err = fmt.Errorf("scenario: %d of %d rows are published, want %d", published, all, rows)
	}
	return err
}
