package scenario

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// claims measures how the size of a table slows a claim. It drains a large table, half of it
// published, and a small one of pending rows, in turn. Each number of ordering keys has a broker of
// its own, whose rows lie among those of the others in the large table.
type claims struct {
	dialect        outbox.Dialect
	rows, small    int
	payload, batch int
	keys           []int
	exchanges      int
}

func newClaims(s *Sizes) Scenario {
	c := &claims{}
	s.dialect(&c.dialect)
	s.number(&c.rows, "rows", 10_000_000, 4000, "rows of the large table, half of them published")
	s.number(&c.small, "small", 200_000, 500, "rows of the small table, all pending")
	s.number(&c.payload, "payload", 500, 100, "bytes of payload")
	s.number(&c.batch, "batch", 500, 20, "rows of a claim")
	s.numbers(&c.keys, "keys", []int{1, 1000, 100_000}, []int{1, 100}, "numbers of ordering keys")
	s.number(&c.exchanges, "exchanges", 300, 5, "claims to measure in each run, for each number of keys and each table")
	return c
}

const (
	claimsLimit = 1.5 // times the p99 of the small table
	heapLimit   = 1.1
	// claimsInARow is how many exchanges on one table follow each other.
	claimsInARow = 10
	// claimsWarm is how many exchanges are not measured.
	claimsWarm = 20
)

func brokerOf(keys int) string { return fmt.Sprintf("keys-%d", keys) }

// Run implements Scenario.
func (c *claims) Run(ctx context.Context, o *Options) error {
	fill := fixture.Fill{Events: c.rows / 2 / len(c.keys), KeysOf: map[string]int{}, Payload: c.payload}
	for _, keys := range c.keys {
		fill.Brokers = append(fill.Brokers, brokerOf(keys))
		fill.KeysOf[brokerOf(keys)] = keys
	}
	published := fill
	published.Published = time.Hour
	return o.withRig(ctx, setting{dialect: c.dialect, fills: []fixture.Fill{published, fill}}, func(ctx context.Context, large *rig) error {
		return o.eachRun("claims", func(run int) error {
			for _, keys := range c.keys {
				fill := fixture.Fill{Events: c.small, Brokers: []string{brokerOf(keys)}, Keys: keys, Payload: c.payload}
				err := o.withRig(ctx, setting{dialect: c.dialect, fills: []fixture.Fill{fill}}, func(ctx context.Context, small *rig) error {
					return c.compare(ctx, o, o.random(run), keys, large.Table, small.Table)
				})
				if err != nil {
					return fmt.Errorf("%d keys: %w", keys, err)
				}
			}
			return nil
		})
	})
}

// compare lets both tables take turns.
func (c *claims) compare(ctx context.Context, o *Options, random *rand.Rand, keys int, tables ...*fixture.Table) error {
	sides := make([]*claimer, len(tables))
	for i, table := range tables {
		ready, err := table.Store.Ready(ctx, brokerOf(keys), 0)
		if err != nil {
			return err
		}
		sides[i] = &claimer{store: table.Store, broker: brokerOf(keys), batch: c.batch, shards: ready.Shards, open: map[int]*driver.Completion{}}
		if err := sides[i].exchange(ctx, min(claimsWarm, c.exchanges)); err != nil {
			return err
		}
		sides[i].times = nil
	}
	for done := 0; done < c.exchanges; done += claimsInARow {
		for _, i := range random.Perm(len(sides)) {
			if err := sides[i].exchange(ctx, min(claimsInARow, c.exchanges-done)); err != nil {
				return err
			}
		}
	}
	s, of := o.Report.Scenario("claims"), plural(keys, "key")
	for i, name := range []string{"large, ", "small, "} {
		s.AddTimes(of, name, sides[i].times)
		s.Add(of, name+"peak heap", "MiB", float64(sides[i].heap)/(1<<20))
		for _, completion := range sides[i].open {
			if _, err := sides[i].store.Exchange(ctx, completion, nil); err != nil {
				return err
			}
		}
	}
	large, small := sides[0], sides[1]
	s.AddRatio(of, "large, times small", 0.5, large.times, small.times)
	s.AddRatio(of, "large, times small", 0.99, large.times, small.times).LimitAtMost(claimsLimit, "P7")
	s.Add(of, "large, times small, peak heap", "x", float64(large.heap)/float64(small.heap)).LimitAtMost(heapLimit, "P7")
	return nil
}

// claimer claims batch after batch from the shards of a broker in turn. Each exchange completes the
// batch that was claimed before from the same shard, as a worker does.
type claimer struct {
	store  driver.Delivery
	broker string
	batch  int
	shards []int
	turn   int
	open   map[int]*driver.Completion
	times  []time.Duration
	heap   uint64
}

// exchange makes some exchanges from a clean heap on, each of which must come back full.
func (c *claimer) exchange(ctx context.Context, exchanges int) error {
	if len(c.shards) == 0 {
		return fmt.Errorf("scenario: broker %s has nothing to claim", c.broker)
	}
	runtime.GC()
	for range exchanges {
		shard := c.shards[c.turn%len(c.shards)]
		c.turn++
		began := time.Now()
		exchanged, err := c.store.Exchange(ctx, c.open[shard], &driver.Claim{
			Broker: c.broker, Shard: shard, Limit: c.batch, Window: c.batch, Lease: 5 * time.Minute, Worker: "bench/1/default/" + c.broker + "/0",
		})
		c.times = append(c.times, time.Since(began))
		messages := exchanged.Batch.Messages
		switch {
		case err != nil:
			return err
		case exchanged.Completed != nil && exchanged.Completed.Lost > 0:
			return fmt.Errorf("scenario: %d rows of a completion were lost", exchanged.Completed.Lost)
		case len(messages) != c.batch:
			return fmt.Errorf("scenario: a claim of %s has %d rows of %d: use more rows or fewer exchanges", c.broker, len(messages), c.batch)
		}
		completion := &driver.Completion{Lease: exchanged.Batch.Lease, Published: make([]driver.Delivered, len(messages))}
		for i := range messages {
			completion.Published[i].ID = messages[i].ID
		}
		c.open[shard] = completion
		heap, _ := fixture.Memory()
		c.heap = max(c.heap, heap)
	}
	return nil
}
