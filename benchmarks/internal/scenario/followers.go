package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// Followers asks what one message in backoff costs that has very many messages of its key behind
// it: how long it takes to defer them, what a claim of other keys of the same shard costs before,
// meanwhile and afterwards, and how long it takes to deliver them once their head is done.
type Followers struct {
	// Rows is how many followers there are.
	Rows int64
	// Payload of each row, in bytes.
	Payload int
	// Batch is the limit of a claim, and its window.
	Batch int
	// Exchanges to measure on other keys, before and after.
	Exchanges int
	// Held leaves a transaction with a snapshot open meanwhile, so that nothing dead is ever
	// removed.
	Held bool
}

// DefaultFollowers are the sizes of a full run.
func DefaultFollowers() Followers {
	return Followers{Rows: 1_000_000, Payload: 100, Batch: 500, Exchanges: 40}
}

// ShortFollowers are sizes that only show whether the harness works.
func ShortFollowers() Followers { return Followers{Rows: 1000, Payload: 50, Batch: 50, Exchanges: 3} }

const (
	followersBroker = "default"
	// deferWindow is how many rows at the head of a shard a worker looks at to defer those that
	// wait.
	deferWindow = 4000
	otherKeys   = 1000
)

// Check implements Scenario.
func (f Followers) Check(int) error {
	if f.Batch < 1 || f.Rows < 2*int64(f.Batch) || f.Exchanges < 2 || f.Payload < 0 {
		return fmt.Errorf("%d followers, batches of %d, %d exchanges: use followers for two batches at least, and 2 exchanges, and a payload of at least 0 bytes",
			f.Rows, f.Batch, f.Exchanges)
	}
	return nil
}

// Run implements Scenario.
func (f Followers) Run(ctx context.Context, o *Options) error {
	return o.withDatabase(ctx, "followers", func(database *fixture.Database) error {
		for run := range o.Runs {
			table, err := database.Table(ctx, tableOf(run), 1)
			if err != nil {
				return err
			}
			q := &queue{Followers: f, options: o, report: o.Report.Scenario("followers"), database: database, table: table}
			if err := q.run(ctx); err != nil {
				return err
			}
			if err := table.Drop(ctx); err != nil {
				return err
			}
			o.logf("followers: run %d of %d: done", run+1, o.Runs)
		}
		return nil
	})
}

// queue is the shard of the head in one run.
type queue struct {
	Followers

	options  *Options
	report   *report.Scenario
	database *fixture.Database
	table    *fixture.Table
	shard    int
	head     driver.Lease
}

func (q *queue) run(ctx context.Context) (err error) {
	if q.Held {
		release, holdErr := Idle{}.hold(ctx, q.database, "")
		if holdErr != nil {
			return holdErr
		}
		defer func() { err = errors.Join(err, release()) }()
	}
	for _, part := range []func(context.Context) error{q.findShard, q.before, q.fail, q.deferRows, q.after, q.deliverOthers, q.comeBack} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// findShard delivers a row of the head's key, to learn its shard.
func (q *queue) findShard(ctx context.Context) error {
	if err := q.fillHead(ctx, 1); err != nil {
		return err
	}
	d, err := newDrain(ctx, q.table.Store, followersBroker, q.Batch)
	if err != nil {
		return err
	}
	q.shard = d.shards[0]
	if _, _, err := d.step(ctx); err != nil {
		return err
	}
	return d.finish(ctx)
}

func (q *queue) fillHead(ctx context.Context, rows int64) error {
	return q.fill(ctx, rows, "head-", 1)
}

// fillOthers writes rows of other keys, enough for so many full batches of each shard.
func (q *queue) fillOthers(ctx context.Context, batches int) error {
	const shards, spare = 4, 2
	return q.fill(ctx, int64(batches*q.Batch*shards*spare), "other-", otherKeys)
}

func (q *queue) fill(ctx context.Context, rows int64, prefix string, keys int64) error {
	return q.table.Fill(ctx, q.options.Log, fixture.Fill{
		Rows: rows, Brokers: []string{followersBroker}, Keys: []int64{keys}, Prefix: prefix, Payload: q.Payload, Seed: q.options.Seed,
	})
}

func (q *queue) drain(wake bool) *drain {
	return &drain{store: q.table.Store, broker: followersBroker, batch: q.Batch, wake: wake, shards: []int{q.shard}, open: map[int]*driver.Completion{}}
}

// before measures claims of other keys when nothing waits.
func (q *queue) before(ctx context.Context) error {
	if err := q.fillOthers(ctx, q.Exchanges); err != nil {
		return err
	}
	if err := q.table.Vacuum(ctx); err != nil {
		return err
	}
	if err := q.others(ctx, "claim before", false); err != nil {
		return err
	}
	return q.table.Empty(ctx)
}

// others measures full claims of other keys.
func (q *queue) others(ctx context.Context, of string, wake bool) error {
	d := q.drain(wake)
	if _, err := d.full(ctx); err != nil { // what must be planned and loaded once
		return err
	}
	var times []time.Duration
	counted, err := q.table.Counters(ctx)
	if err != nil {
		return err
	}
	for range q.Exchanges - 1 {
		took, err := d.full(ctx)
		if err != nil {
			return err
		}
		times = append(times, took)
	}
	return q.claims(ctx, of, times, counted, d)
}

// claims reports what claims have cost since the counters were read.
func (q *queue) claims(ctx context.Context, of string, times []time.Duration, counted fixture.Counters, d *drain) error {
	now, err := q.table.Counters(ctx)
	if err != nil {
		return err
	}
	cost, n := now.Minus(counted), float64(max(1, len(times)))
	q.report.Add(of, "p50", "ms", report.Milliseconds(report.Percentile(times, 0.5)))
	q.report.Add(of, "p99", "ms", report.Milliseconds(report.Percentile(times, 0.99)))
	q.report.Add(of, "index entries read", "rows", float64(cost.Entries)/n)
	q.report.Add(of, "pages looked at", "pages", float64(cost.Pages)/n)
	return d.finish(ctx)
}

// fail lets the head fail, with all its followers behind it.
func (q *queue) fail(ctx context.Context) error {
	if err := q.fillHead(ctx, q.Rows+1); err != nil {
		return err
	}
	if err := q.fillOthers(ctx, q.Exchanges); err != nil {
		return err
	}
	if err := q.table.Vacuum(ctx); err != nil {
		return err
	}
	exchanged, err := q.table.Store.Exchange(ctx, nil, &driver.Claim{
		Broker: followersBroker, Shard: q.shard, Limit: 1, Window: q.Batch, Lease: time.Hour, Worker: "bench",
	})
	if err != nil {
		return err
	}
	if len(exchanged.Batch.Messages) != 1 {
		return fmt.Errorf("scenario: the head was not claimed, but %d rows", len(exchanged.Batch.Messages))
	}
	q.head = exchanged.Batch.Lease
	_, err = q.table.Store.Exchange(ctx, &driver.Completion{Lease: q.head, Other: []driver.Outcome{
		{ID: q.head.FirstID, Status: outbox.StatusFailed, Spent: true, Delay: time.Hour},
	}}, nil)
	return err
}
