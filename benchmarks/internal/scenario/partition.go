package scenario

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// Partition asks what an outbox that is partitioned by day costs and spares, beside one that is not and
// has as many published rows: claims and completions of batches and of single messages, the commits
// of writers, and the purge of one day, alone and beside writers.
type Partition struct {
	// Rows that are published, in each table, and on how many days they were.
	Rows int64
	Days int64
	// Payload of each row, in bytes.
	Payload int
	// Keys is how many ordering keys the messages have that are delivered.
	Keys int64
	// Batches are the limits of claims, of which each is measured, and Exchanges how often.
	Batches   []int
	Exchanges int
	// Commits is how many transactions of one message are measured.
	Commits int
}

// DefaultPartition are the sizes of a full run.
func DefaultPartition() Partition {
	return Partition{Rows: 10_000_000, Days: 35, Payload: 300, Keys: 1000, Batches: []int{500, 1}, Exchanges: 500, Commits: 3000}
}

// ShortPartition are sizes that only show whether the harness works.
func ShortPartition() Partition {
	return Partition{Rows: 2000, Days: 4, Payload: 100, Keys: 1000, Batches: []int{5, 1}, Exchanges: 10, Commits: 20}
}

const (
	partitionTarget    = 1.5 // of the p99 of claims without partitions
	partitionChunk     = 250_000
	partitionWriters   = 4
	partitionThinkTime = 5 * time.Millisecond // of a writer's transaction
	partitionCalm      = 2 * time.Second
)

// Check implements Scenario.
func (p Partition) Check(int) error {
	if p.Days < 3 || p.Rows < p.Days || p.Keys < 1 || len(p.Batches) == 0 || p.Exchanges < claimsBlock || p.Commits < 1 {
		return fmt.Errorf("%d rows on %d days, %d keys, %d exchanges, %d commits: use at least 3 days with a row, 1 key, %d exchanges and 1 commit",
			p.Rows, p.Days, p.Keys, p.Exchanges, p.Commits, claimsBlock)
	}
	return nil
}

// keeper is one of the two tables.
type keeper struct {
	*fixture.Table

	database *fixture.Database
	name     string
	times    []time.Duration
	commits  []time.Duration
}

// Run implements Scenario.
func (p Partition) Run(ctx context.Context, o *Options) error {
	return o.withDatabase(ctx, "partition", func(database *fixture.Database) error {
		whole, err := database.Table(ctx, "whole", 2)
		if err != nil {
			return err
		}
		days, err := database.Partitioned(ctx, "days", 2)
		if err != nil {
			return err
		}
		kinds := [2]*keeper{{Table: whole, database: database, name: "one table"}, {Table: days, database: database, name: "by day"}}
		if err := p.fill(ctx, o, whole, days); err != nil {
			return err
		}
		random := rand.New(rand.NewPCG(o.Seed, 0))
		for run := range o.Runs {
			for _, batch := range p.Batches {
				if err := p.exchanges(ctx, o, random, kinds, batch); err != nil {
					return err
				}
			}
			if err := p.commits(ctx, o, random, kinds); err != nil {
				return err
			}
			o.logf("partition: run %d of %d: claims and commits done", run+1, o.Runs)
		}
		for _, k := range kinds { // a day goes once
			if err := p.purge(ctx, o, k); err != nil {
				return err
			}
		}
		return nil
	})
}

// fill writes the published rows, into one table, and from there into the history of the other one.
func (p Partition) fill(ctx context.Context, o *Options, whole, days *fixture.Table) error {
	began := time.Now()
	for first := int64(1); first <= p.Rows; first += partitionChunk {
		if err := whole.Exec(ctx, readSQL("partition_fill"), first, min(first+partitionChunk-1, p.Rows), p.Rows, p.Days, p.Payload); err != nil {
			return fmt.Errorf("scenario: fill: %w", err)
		}
	}
	if err := days.Exec(ctx, strings.ReplaceAll(readSQL("partition_days"), "{{days}}", strconv.FormatInt(p.Days, 10))); err != nil {
		return fmt.Errorf("scenario: make the days: %w", err)
	}
	if err := days.Exec(ctx, "INSERT INTO {{table}}_history TABLE whole"); err != nil { // the columns are in the same order
		return fmt.Errorf("scenario: fill the history: %w", err)
	}
	for _, table := range []*fixture.Table{whole, days} {
		if err := table.Vacuum(ctx); err != nil {
			return err
		}
	}
	if err := days.Exec(ctx, "VACUUM (ANALYZE) {{table}}_history"); err != nil {
		return err
	}
	o.logf("partition: %d rows were written twice in %s", p.Rows, time.Since(began).Round(time.Second))
	return nil
}

// exchanges delivers messages from both tables in turn, so many at a time.
func (p Partition) exchanges(ctx context.Context, o *Options, random *rand.Rand, kinds [2]*keeper, batch int) error {
	warm := min(claimsWarm, p.Exchanges)
	// Keys are spread over the shards by a hash, and each shard must stay full.
	rows := int64((p.Exchanges+warm)*batch)*5/4 + int64(4*outbox.Shards*batch)
	var drains [2]*drain
	for i, k := range kinds {
		k.times = nil
		fill := fixture.Fill{Rows: rows, Brokers: []string{drainBroker}, Keys: []int64{p.Keys}, Prefix: "order-", Payload: p.Payload, Seed: random.Uint64()}
		if err := k.Fill(ctx, o.Log, fill); err != nil {
			return err
		}
		var err error
		if drains[i], err = newDrain(ctx, k.Store, drainBroker, batch); err != nil {
			return err
		}
		for range warm {
			if _, err := drains[i].full(ctx); err != nil {
				return err
			}
		}
	}
	for done := 0; done < p.Exchanges; done += claimsBlock {
		for _, i := range random.Perm(len(kinds)) {
			for range min(claimsBlock, p.Exchanges-done) {
				took, err := drains[i].full(ctx)
				if err != nil {
					return err
				}
				kinds[i].times = append(kinds[i].times, took)
			}
		}
	}
	for i, k := range kinds {
		if err := drains[i].finish(ctx); err != nil {
			return err
		}
		if err := k.Exec(ctx, "DELETE FROM {{table}} WHERE target_broker = $1 AND finished_at IS NULL", drainBroker); err != nil {
			return err
		}
	}
	p.compare(o, fmt.Sprintf("exchange of %d", batch), kinds[0].times, kinds[1].times, partitionTarget)
	return nil
}

// compare reports the times of both tables, and how those by day are to the others.
func (p Partition) compare(o *Options, of string, whole, days []time.Duration, target float64) {
	s := o.Report.Scenario("partition")
	for _, share := range []float64{0.5, 0.99} {
		name := fmt.Sprintf("p%.0f", 100*share)
		w, d := report.Percentile(whole, share), report.Percentile(days, share)
		s.Add(of, name+" one table", "ms", report.Milliseconds(w))
		s.Add(of, name+" by day", "ms", report.Milliseconds(d))
		s.AddRatio(of, name+" ratio", float64(d)/float64(w), target)
	}
}

// insertOne is a message as plain SQL writes it, with an id of version 7.
const insertOne = `INSERT INTO {{table}} (message_id, target_broker, stream, type, ordering_key, payload)
VALUES ((lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || '7'
         || substr(md5(random()::text), 1, 3) || '8' || substr(md5(random()::text), 1, 15))::uuid,
        'written', 'ordering::order', 'Ordering.OrderPlaced.v1', 'order-1', convert_to(repeat('x', 300), 'UTF8'))`

// commits writes one message in a transaction, to both tables in turn.
func (p Partition) commits(ctx context.Context, o *Options, random *rand.Rand, kinds [2]*keeper) error {
	for _, k := range kinds {
		k.commits = nil
	}
	for range p.Commits {
		for _, i := range random.Perm(len(kinds)) {
			began := time.Now()
			if err := kinds[i].Exec(ctx, insertOne); err != nil {
				return err
			}
			kinds[i].commits = append(kinds[i].commits, time.Since(began))
		}
	}
	p.compare(o, "commit of a message", kinds[0].commits, kinds[1].commits, partitionTarget)
	return nil
}

// purge removes the oldest day, while writers are at work.
func (p Partition) purge(ctx context.Context, o *Options, k *keeper) error {
	s, of := o.Report.Scenario("partition"), "purge of a day, "+k.name
	writing, stop := context.WithCancel(ctx)
	defer stop()
	writers := writers{kind: k}
	writers.start(writing)
	if err := pause(ctx, partitionCalm); err != nil {
		return err
	}
	calm := writers.cut()
	before, err := k.database.WAL(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	removed, err := p.remove(ctx, k)
	took := time.Since(began)
	if err != nil {
		return err
	}
	after, err := k.database.WAL(ctx)
	if err != nil {
		return err
	}
	beside := writers.cut()
	stop()
	if err := writers.wait(); err != nil {
		return err
	}
	if want := p.Rows / p.Days; int64(removed) < want || int64(removed) > want+1 {
		return fmt.Errorf("scenario: %d rows were purged, want %d", removed, want)
	}
	s.Add(of, "took", "s", took.Seconds())
	s.Add(of, "rows", "rows", float64(removed))
	s.Add(of, "log, writers included", "B/row", float64(after-before)/float64(removed))
	s.Add(of, "writers: p50 without", "ms", report.Milliseconds(report.Percentile(calm, 0.5)))
	s.Add(of, "writers: p99 without", "ms", report.Milliseconds(report.Percentile(calm, 0.99)))
	if len(beside) > 0 {
		s.Add(of, "writers: p50 beside", "ms", report.Milliseconds(report.Percentile(beside, 0.5)))
		s.Add(of, "writers: p99 beside", "ms", report.Milliseconds(report.Percentile(beside, 0.99)))
		s.Add(of, "writers: slowest beside", "ms", report.Milliseconds(report.Percentile(beside, 1)))
	}
	return nil
}

// remove purges what is older than all days but the first.
func (p Partition) remove(ctx context.Context, k *keeper) (removed int, err error) {
	const batch = 5000
	retention := time.Duration(p.Days-1) * 24 * time.Hour
	if k.name == "by day" {
		return k.Store.PurgeHistory(ctx, func(string) time.Duration { return retention }, batch, 0, nil)
	}
	for {
		n, err := k.Store.Purge(ctx, admin.PurgeRequest{Broker: "broker", Status: outbox.StatusPublished, Retention: retention, Limit: batch})
		if removed += n; err != nil || n < batch {
			return removed, err
		}
	}
}

// writers write messages in transactions that take some time.
type writers struct {
	kind *keeper

	group sync.WaitGroup
	mu    sync.Mutex
	times []time.Duration
	err   error
}

func (w *writers) start(ctx context.Context) {
	for range partitionWriters {
		w.group.Go(func() {
			for ctx.Err() == nil {
				took, err := w.kind.database.Transaction(ctx, w.kind.Name(), insertOne, partitionThinkTime)
				w.mu.Lock()
				if err != nil && ctx.Err() == nil {
					w.err = errors.Join(w.err, err)
				} else if err == nil {
					w.times = append(w.times, took)
				}
				w.mu.Unlock()
			}
		})
	}
}

// cut returns the times since the last cut.
func (w *writers) cut() []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	times := w.times
	w.times = nil
	return times
}

func (w *writers) wait() error {
	w.group.Wait()
	return w.err
}
