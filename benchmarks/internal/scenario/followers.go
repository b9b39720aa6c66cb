package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/gorm-fanout/fanout/benchmarks/internal/bed"
	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
	"github.com/gorm-fanout/fanout/outbox"
)

// Followers asks what one message in backoff costs that has very many messages of its key behind it: how long it takes to
// park them, what a claim of other keys of the same lane costs before, meanwhile and afterwards, and how long it takes to
// deliver them once their head is done.
type Followers struct {
	// Rows is how many followers there are.
	Rows int64
	// Payload of each row, in bytes.
	Payload int
	// Batch is the limit of a claim, and its window.
	Batch int
	// Exchanges to measure on other keys, before and after.
	Exchanges int
}

// DefaultFollowers are the sizes of a full run.
func DefaultFollowers() Followers {
	return Followers{Rows: 1_000_000, Payload: 100, Batch: 500, Exchanges: 40}
}

// ShortFollowers are sizes that only show whether the harness works.
func ShortFollowers() Followers { return Followers{Rows: 3000, Payload: 50, Batch: 100, Exchanges: 3} }

const (
	followersBroker = "default"
	// parkWindow is how many rows at the head of a lane a worker looks at to park those that wait.
	parkWindow = 4000
	otherKeys  = 1000
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
	return o.withDatabase(ctx, "followers", func(database *bed.Database) error {
		for run := range o.Runs {
			table, err := database.Table(ctx, tableOf(run), 1)
			if err != nil {
				return err
			}
			q := &queue{Followers: f, options: o, report: o.Report.Scenario("followers"), table: table}
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

// queue is the lane of the head in one run.
type queue struct {
	Followers

	options *Options
	report  *report.Scenario
	table   *bed.Table
	lane    int
	head    outbox.Lease
}

func (q *queue) run(ctx context.Context) error {
	for _, part := range []func(context.Context) error{q.findLane, q.before, q.fail, q.park, q.after, q.deliverOthers, q.comeBack} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// findLane delivers a row of the head's key, to learn its lane.
func (q *queue) findLane(ctx context.Context) error {
	if err := q.fillHead(ctx, 1); err != nil {
		return err
	}
	d, err := newDrain(ctx, q.table.Store, followersBroker, q.Batch)
	if err != nil {
		return err
	}
	q.lane = d.lanes[0]
	if _, _, err := d.step(ctx); err != nil {
		return err
	}
	return d.finish(ctx)
}

func (q *queue) fillHead(ctx context.Context, rows int64) error {
	return q.fill(ctx, rows, "head-", 1)
}

// fillOthers writes rows of other keys, enough for so many full batches of each lane.
func (q *queue) fillOthers(ctx context.Context, batches int) error {
	const lanes, spare = 4, 2
	return q.fill(ctx, int64(batches*q.Batch*lanes*spare), "other-", otherKeys)
}

func (q *queue) fill(ctx context.Context, rows int64, prefix string, keys int64) error {
	return q.table.Fill(ctx, q.options.Log, bed.Fill{
		Rows: rows, Brokers: []string{followersBroker}, Keys: []int64{keys}, Prefix: prefix, Payload: q.Payload, Seed: q.options.Seed,
	})
}

func (q *queue) drain(wake bool) *drain {
	return &drain{store: q.table.Store, broker: followersBroker, batch: q.Batch, wake: wake, lanes: []int{q.lane}, open: map[int]*outbox.Settlement{}}
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
func (q *queue) claims(ctx context.Context, of string, times []time.Duration, counted bed.Counters, d *drain) error {
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
	exchanged, err := q.table.Store.Exchange(ctx, nil, &outbox.Claim{
		Broker: followersBroker, Lane: q.lane, Limit: 1, Window: q.Batch, Lease: time.Hour, Worker: "bench",
	})
	if err != nil {
		return err
	}
	if len(exchanged.Batch.Messages) != 1 {
		return fmt.Errorf("scenario: the head was not claimed, but %d rows", len(exchanged.Batch.Messages))
	}
	q.head = exchanged.Batch.Lease
	_, err = q.table.Store.Exchange(ctx, &outbox.Settlement{Lease: q.head, Other: []outbox.Outcome{
		{ID: q.head.FirstID, Status: outbox.StatusFailed, Spent: true, Delay: time.Hour},
	}}, nil)
	return err
}

// park does what a worker does that finds waiting rows alone, until the first claim takes a row of another key.
func (q *queue) park(ctx context.Context) error {
	var (
		d             = q.drain(true)
		claims, parks []time.Duration
		parked        int
		entries       int64
	)
	start, err := q.table.Counters(ctx)
	if err != nil {
		return err
	}
	for {
		before, err := q.table.Counters(ctx)
		if err != nil {
			return err
		}
		batch, took, err := d.step(ctx)
		if err != nil {
			return err
		}
		if len(batch.Messages) > 0 {
			break
		}
		after, err := q.table.Counters(ctx)
		if err != nil {
			return err
		}
		entries += after.Minus(before).Entries
		claims = append(claims, took)
		at := time.Now()
		n, err := q.table.Store.Park(ctx, &outbox.Claim{Broker: followersBroker, Lane: q.lane, Window: parkWindow})
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("scenario: nothing was parked after %d rows", parked)
		}
		parks = append(parks, time.Since(at))
		parked += n
	}
	if err := d.finish(ctx); err != nil {
		return err
	}
	if want := int(q.Rows) + 1; parked > want || parked < want-parkWindow {
		return fmt.Errorf("scenario: %d rows were parked, want about %d", parked, want)
	}
	end, err := q.table.Counters(ctx)
	if err != nil {
		return err
	}
	q.report.Add("parking", "until another key is claimed", "s", (sum(claims) + sum(parks)).Seconds())
	q.report.Add("parking", "calls of Park", "calls", float64(len(parks)))
	q.report.Add("parking", "p50 of Park", "ms", report.Milliseconds(report.Percentile(parks, 0.5)))
	q.report.Add("parking", "WAL per row parked", "B", float64(end.Minus(start).WAL)/float64(parked))
	q.report.Add("claim meanwhile", "p50", "ms", report.Milliseconds(report.Percentile(claims, 0.5)))
	q.report.Add("claim meanwhile", "p99", "ms", report.Milliseconds(report.Percentile(claims, 0.99)))
	q.report.Add("claim meanwhile", "index entries read", "rows", float64(entries)/float64(max(1, len(claims))))
	return nil
}

// after measures claims of other keys when all followers are out of the way.
func (q *queue) after(ctx context.Context) error {
	if err := q.fillOthers(ctx, q.Exchanges); err != nil {
		return err
	}
	return q.others(ctx, "claim afterwards", true)
}

// deliverOthers delivers what is left of other keys.
func (q *queue) deliverOthers(ctx context.Context) error {
	for d := q.drain(true); ; {
		batch, _, err := d.step(ctx)
		if err != nil || len(batch.Messages) == 0 {
			return err
		}
	}
}

// comeBack delivers the head and all its followers.
func (q *queue) comeBack(ctx context.Context) error {
	if err := q.table.Wake(ctx, followersBroker, q.head.FirstID); err != nil {
		return err
	}
	counted, err := q.table.Counters(ctx)
	if err != nil {
		return err
	}
	var (
		d     = q.drain(true)
		times []time.Duration
		rows  int64
		first time.Duration
		began = time.Now()
	)
	for rows < q.Rows+1 {
		batch, took, err := d.step(ctx)
		if err != nil {
			return err
		}
		if len(batch.Messages) == 0 {
			return fmt.Errorf("scenario: %d of %d followers came back", rows, q.Rows)
		}
		times = append(times, took)
		if rows += int64(len(batch.Messages)); rows > 1 && first == 0 {
			first = time.Since(began)
		}
	}
	took := time.Since(began)
	last := times[len(times)*2/3:]
	q.report.Add("coming back", "until the first follower", "s", first.Seconds())
	q.report.Add("coming back", "until the last", "s", took.Seconds())
	q.report.Add("coming back", "rate", "rows/s", float64(rows)/took.Seconds())
	q.report.Add("coming back", "p50 in the last third", "ms", report.Milliseconds(report.Percentile(last, 0.5)))
	if err := q.claims(ctx, "coming back", times, counted, d); err != nil {
		return err
	}
	left, err := q.table.Waiting(ctx)
	if err == nil && left > 0 {
		err = fmt.Errorf("scenario: %d rows are still parked", left)
	}
	return err
}

func sum(times []time.Duration) (total time.Duration) {
	for _, took := range times {
		total += took
	}
	return total
}
