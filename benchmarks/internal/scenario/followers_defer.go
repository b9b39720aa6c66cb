package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// defer does what a worker does that finds waiting rows alone, until the first claim takes a row of
// another key.
func (q *queue) deferRows(ctx context.Context) error {
	var (
		d              = q.drain(true)
		claims, defers []time.Duration
		deferred       int
		entries        int64
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
		n, err := q.deferWindow(ctx)
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("scenario: nothing was deferred after %d rows", deferred)
		}
		defers = append(defers, time.Since(at))
		deferred += n
	}
	if err := d.finish(ctx); err != nil {
		return err
	}
	end, err := q.table.Counters(ctx)
	if err != nil {
		return err
	}
	q.report.Add("deferring", "until another key is claimed", "s", (sum(claims) + sum(defers)).Seconds())
	q.report.Add("deferring", "calls of Defer", "calls", float64(len(defers)))
	q.report.Add("deferring", "p50 of Defer", "ms", report.Milliseconds(report.Percentile(defers, 0.5)))
	q.report.Add("deferring", "WAL per row deferred", "B", float64(end.Minus(start).WAL)/float64(deferred))
	q.report.Add("claim meanwhile", "p50", "ms", report.Milliseconds(report.Percentile(claims, 0.5)))
	q.report.Add("claim meanwhile", "p99", "ms", report.Milliseconds(report.Percentile(claims, 0.99)))
	q.report.Add("claim meanwhile", "index entries read", "rows", float64(entries)/float64(max(1, len(claims))))
	rest, err := q.deferWindow(ctx) // what stood beside the row of another key
	if err == nil && deferred+rest != int(q.Rows)+1 {
		err = fmt.Errorf("scenario: %d rows were deferred, want the head and %d followers", deferred+rest, q.Rows)
	}
	return err
}

// deferWindow looks at so many rows as a worker does.
func (q *queue) deferWindow(ctx context.Context) (int, error) {
	return q.table.Store.Defer(ctx, &driver.Claim{Broker: followersBroker, Shard: q.shard, Window: deferWindow})
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
		err = fmt.Errorf("scenario: %d rows are still deferred", left)
	}
	return err
}

func sum(times []time.Duration) (total time.Duration) {
	for _, took := range times {
		total += took
	}
	return total
}
