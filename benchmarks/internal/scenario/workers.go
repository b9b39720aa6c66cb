package scenario

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/outbox"
)

// Workers asks what the number of workers brings and costs, with servers at hand and far away.
type Workers struct {
	// Rows to drain in each case and run; Payload of each, in bytes; Batch is the limit of a claim;
	// Keys is the number of ordering keys.
	Rows    int64
	Payload int
	Batch   int
	Keys    int64
	// Counts are the numbers of workers.
	Counts []int
	// Redis and Postgres are how far away the servers are, as the time of a round trip. While one
	// is away, the other is at hand.
	Redis, Postgres []time.Duration
	// Only measures the cases in whose names one of these texts occurs. Default: all.
	Only []string
}

// DefaultWorkers are the sizes of a full run.
func DefaultWorkers() Workers {
	const ms = time.Millisecond
	return Workers{
		Rows: 30_000, Payload: 500, Batch: 500, Keys: 1000, Counts: []int{1, 2, 3, 4},
		Redis: []time.Duration{0, ms, 5 * ms, 20 * ms}, Postgres: []time.Duration{ms},
	}
}

// ShortWorkers are sizes that only show whether the harness works.
func ShortWorkers() Workers {
	return Workers{
		Rows: 500, Payload: 100, Batch: 50, Keys: 100, Counts: []int{1, 2},
		Redis: []time.Duration{0, time.Millisecond}, Postgres: []time.Duration{time.Millisecond},
	}
}

// UsesRedis implements RedisUser.
func (Workers) UsesRedis() {}

// Check implements Scenario.
func (w Workers) Check(int) error {
	negative := func(d time.Duration) bool { return d < 0 }
	if w.Rows < 1 || w.Payload < 0 || w.Batch < 1 || w.Keys < 2 || len(w.Counts) == 0 || slices.Min(w.Counts) < 1 ||
		slices.ContainsFunc(w.Redis, negative) || slices.ContainsFunc(w.Postgres, negative) {
		return fmt.Errorf("%d rows, batch %d, %d keys, workers %v, %v and %v away: use at least 1 of each, 2 keys, and no time below 0",
			w.Rows, w.Batch, w.Keys, w.Counts, w.Redis, w.Postgres)
	}
	if len(w.sides()) == 0 {
		return fmt.Errorf("no case is called like %s", strings.Join(w.Only, " or "))
	}
	return nil
}

func (w Workers) sides() []*contest {
	var all []*contest
	add := func(place string, postgres, redis time.Duration) {
		for _, n := range w.Counts {
			c := &contest{
				name: fmt.Sprintf("%s, %d workers", place, n), kind: manyKeys, rows: w.Rows, keys: w.Keys, ordered: true,
				connections: int32(n + 2), postgresAway: postgres, redisAway: redis, drain: byFanout(outbox.Policy{BatchSize: w.Batch, Workers: n}), //nolint:gosec // few
			}
			if n == 1 {
				c.name = place + ", 1 worker"
			}
			all = append(all, c)
		}
	}
	for _, away := range w.Redis {
		if away == 0 {
			add("at hand", 0, 0)
		} else {
			add(fmt.Sprintf("Redis %s away", away), 0, away)
		}
	}
	for _, away := range w.Postgres {
		add(fmt.Sprintf("PostgreSQL %s away", away), away, 0)
	}
	return slices.DeleteFunc(all, func(c *contest) bool {
		return len(w.Only) > 0 && !slices.ContainsFunc(w.Only, func(part string) bool { return strings.Contains(c.name, part) })
	})
}

// Run implements Scenario.
func (w Workers) Run(ctx context.Context, o *Options) error {
	return o.withDatabase(ctx, "workers", func(database *fixture.Database) (err error) {
		streams, err := fixture.OpenStreams(ctx, o.Redis)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, streams.Close()) }() //nolint:contextcheck // the context may be what has ended
		if o.Report.Servers["Redis"], err = streams.Version(ctx); err != nil {
			return err
		}
		sides, random := w.sides(), rand.New(rand.NewPCG(o.Seed, 0))
		for run := range o.Runs {
			for _, i := range random.Perm(len(sides)) {
				s := &setup{Backlog: Backlog{Payload: w.Payload, Batch: w.Batch}, options: o, database: database, streams: streams, contest: sides[i]}
				m, err := s.measureAway(ctx, fmt.Sprintf("outbox_%d_%d", run, i))
				if err != nil {
					return fmt.Errorf("%s: %w", sides[i].name, err)
				}
				sides[i].note(run, m)
			}
			o.logf("workers: run %d of %d: done", run+1, o.Runs)
		}
		w.report(o, sides)
		return nil
	})
}

// measureAway is measure with the servers as far away as they are to be.
func (s *setup) measureAway(ctx context.Context, name string) (m measured, err error) {
	s.redis = s.options.Redis
	if s.redisAway > 0 {
		settings, err := redis.ParseURL(s.redis)
		if err != nil {
			return m, err
		}
		far, err := fixture.FarAway(ctx, settings.Network, settings.Addr, s.redisAway)
		if err != nil {
			return m, err
		}
		defer func() { err = errors.Join(err, far.Close()) }()
		at, err := url.Parse(s.redis)
		if err != nil {
			return m, err
		}
		at.Host = far.Addr
		s.redis = at.String()
	}
	return s.measure(ctx, name)
}

// report prints what was found, and compares with the default of two workers at the same place.
func (w Workers) report(o *Options, sides []*contest) {
	s := o.Report.Scenario("workers")
	for _, c := range sides {
		place, _, _ := strings.Cut(c.name, ", ")
		two := slices.IndexFunc(sides, func(c *contest) bool { return c.name == place+", 2 workers" })
		for i := range c.results {
			m := &c.results[i]
			s.Add(c.name, "rate", "msgs/s", m.rate())
			if two >= 0 {
				s.Add(c.name, "of two workers", "x", m.rate()/sides[two].results[i].rate())
			}
			m.report(s, c.name)
		}
	}
}
