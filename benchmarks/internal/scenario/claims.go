package scenario

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
)

// Claims asks what the size of the table costs a claim: it drains a large table, half of which is
// published, and a small one with pending rows alone, in turn. Each number of ordering keys has a
// broker of its own, among which the rows of the large table are dealt out; the small table is
// filled anew for each of them.
type Claims struct {
	// Rows of the large table; one half is published, the other pending.
	Rows int64
	// Small is how many rows the small table has, all pending.
	Small int64
	// Payload of each row, in bytes.
	Payload int
	// Keys are the numbers of ordering keys to measure with.
	Keys []int64
	// Batch is the limit of a claim, and its window.
	Batch int
	// Exchanges to measure in each run, for each number of keys and each table.
	Exchanges int
}

// DefaultClaims are the sizes of a full run.
func DefaultClaims() Claims {
	return Claims{Rows: 10_000_000, Small: 200_000, Payload: 500, Keys: []int64{1, 1000, 100_000}, Batch: 500, Exchanges: 300}
}

// ShortClaims are sizes that only show whether the harness works.
func ShortClaims() Claims {
	return Claims{Rows: 4000, Small: 500, Payload: 100, Keys: []int64{1, 100}, Batch: 20, Exchanges: 5}
}

const (
	claimsTarget = 1.5 // of the small table's p99
	memoryTarget = 1.1 // that is flat
	// claimsBlock is how many exchanges on one table follow each other, so that what the machine
	// does meanwhile hits both alike.
	claimsBlock = 10
	// claimsWarm is how many exchanges go before those that are measured.
	claimsWarm = 20
)

func (c Claims) broker(keys int64) string { return "keys-" + strconv.FormatInt(keys, 10) }

// Check implements Scenario. With its sizes, each claim comes back full.
func (c Claims) Check(runs int) error {
	if len(c.Keys) == 0 || slices.Min(c.Keys) < 1 || c.Batch < 1 || c.Exchanges < 1 || c.Payload < 0 {
		return fmt.Errorf("keys %v, batch %d, exchanges %d: use at least 1 of each, and a payload of at least 0 bytes", c.Keys, c.Batch, c.Exchanges)
	}
	perRun := int64(c.exchanges() * c.Batch)
	perRun += perRun / 4 // keys are spread over the shards by a hash, and each shard must stay full
	if c.Small < perRun {
		return fmt.Errorf("%d exchanges of %d rows need a small table of %d rows, not %d", c.Exchanges, c.Batch, perRun, c.Small)
	}
	if have, need := c.Rows/2/int64(len(c.Keys)), perRun*int64(runs); have < need {
		return fmt.Errorf("%d runs of %d exchanges of %d rows need a large table of %d rows, not %d",
			runs, c.Exchanges, c.Batch, 2*need*int64(len(c.Keys)), c.Rows)
	}
	return nil
}

func (c Claims) exchanges() int { return c.Exchanges + min(claimsWarm, c.Exchanges) }

// Run implements Scenario.
func (c Claims) Run(ctx context.Context, o *Options) error {
	return o.withDatabase(ctx, "claims", func(database *fixture.Database) error {
		large, err := database.Table(ctx, "large", 1)
		if err != nil {
			return err
		}
		small, err := database.Table(ctx, "small", 1)
		if err != nil {
			return err
		}
		brokers := make([]string, len(c.Keys))
		for i, keys := range c.Keys {
			brokers[i] = c.broker(keys)
		}
		began := time.Now()
		for _, published := range []bool{true, false} {
			fill := fixture.Fill{Rows: c.Rows / 2, Brokers: brokers, Keys: c.Keys, Prefix: "order-", Payload: c.Payload, Published: published, Seed: o.Seed}
			if err := large.Fill(ctx, o.Log, fill); err != nil {
				return err
			}
		}
		if err := large.Vacuum(ctx); err != nil {
			return err
		}
		o.logf("claims: the large table of %d rows was filled and vacuumed in %s", c.Rows, time.Since(began).Round(time.Second))
		random := rand.New(rand.NewPCG(o.Seed, 0))
		for run := range o.Runs {
			for _, keys := range c.Keys {
				if err := c.measure(ctx, o, random, large, small, keys); err != nil {
					return fmt.Errorf("%d keys: %w", keys, err)
				}
				o.logf("claims: run %d of %d, %d keys: done", run+1, o.Runs, keys)
			}
		}
		return nil
	})
}

// side is one of the two tables in one run.
type side struct {
	drain *drain
	times []time.Duration
	heap  uint64
}

func (c Claims) measure(ctx context.Context, o *Options, random *rand.Rand, large, small *fixture.Table, keys int64) error {
	broker := c.broker(keys)
	if err := small.Empty(ctx); err != nil {
		return err
	}
	fill := fixture.Fill{Rows: c.Small, Brokers: []string{broker}, Keys: []int64{keys}, Prefix: "order-", Payload: c.Payload, Seed: o.Seed}
	if err := small.Fill(ctx, o.Log, fill); err != nil {
		return err
	}
	if err := small.Vacuum(ctx); err != nil {
		return err
	}
	var sides [2]side
	for i, table := range []*fixture.Table{large, small} {
		if err := table.Warm(ctx, broker, c.exchanges()*c.Batch); err != nil {
			return err
		}
		d, err := newDrain(ctx, table.Store, broker, c.Batch)
		if err != nil {
			return err
		}
		sides[i].drain = d
		for range c.exchanges() - c.Exchanges {
			if _, err := d.full(ctx); err != nil {
				return err
			}
		}
	}
	for done := 0; done < c.Exchanges; done += claimsBlock {
		for _, i := range random.Perm(len(sides)) {
			if err := sides[i].block(ctx, min(claimsBlock, c.Exchanges-done)); err != nil {
				return err
			}
		}
	}
	for i := range sides {
		if err := sides[i].drain.finish(ctx); err != nil {
			return err
		}
	}
	c.report(o, keys, &sides[0], &sides[1])
	return nil
}

// block makes some exchanges, from a clean heap on.
func (s *side) block(ctx context.Context, exchanges int) error {
	runtime.GC()
	for range exchanges {
		took, err := s.drain.full(ctx)
		if err != nil {
			return err
		}
		s.times = append(s.times, took)
		s.heap = max(s.heap, fixture.HeapInUse())
	}
	return nil
}

func (c Claims) report(o *Options, keys int64, large, small *side) {
	s, of := o.Report.Scenario("claims"), fmt.Sprintf("%d keys", keys)
	if keys == 1 {
		of = "1 key"
	}
	for _, share := range []float64{0.5, 0.99} {
		name := fmt.Sprintf("p%.0f", 100*share)
		l, m := report.Percentile(large.times, share), report.Percentile(small.times, share)
		s.Add(of, name+" small", "ms", report.Milliseconds(m))
		s.Add(of, name+" large", "ms", report.Milliseconds(l))
		if ratio := float64(l) / float64(m); share == 0.5 {
			s.Add(of, name+" ratio", "x", ratio)
		} else {
			s.AddRatio(of, name+" ratio", ratio, claimsTarget)
		}
	}
	const mib = 1 << 20
	s.Add(of, "peak heap small", "MiB", float64(small.heap)/mib)
	s.Add(of, "peak heap large", "MiB", float64(large.heap)/mib)
	s.AddRatio(of, "peak heap ratio", float64(large.heap)/float64(small.heap), memoryTarget)
	if resident, ok := fixture.Resident(); ok {
		s.Add(of, "resident", "MiB", float64(resident)/mib)
	}
}
