package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// Idle asks what a forgotten transaction costs: messages are written and delivered at a steady
// rate, at the same time in two databases of one server, in one of which a transaction with a
// snapshot stays open, so that neither vacuum nor pruning removes anything. It has no id of its
// own: that would hold back the other database, too, by way of the snapshots taken there.
type Idle struct {
	// For is how long messages are written.
	For time.Duration
	// Rate of messages per second, in each of the databases.
	Rate int
	// Payload of each message, in bytes, and how many ordering keys they have.
	Payload int
	Keys    int64
	// Writes has the transaction write a row of the outbox, as an application's may that has an event
	// and is not through. It holds back vacuum in both databases then.
	Writes bool
}

// DefaultIdle are the sizes of a full run.
func DefaultIdle() Idle { return Idle{For: 90 * time.Second, Rate: 2000, Payload: 500, Keys: 1000} }

// ShortIdle are sizes that only show whether the harness works.
func ShortIdle() Idle { return Idle{For: 600 * time.Millisecond, Rate: 500, Payload: 100, Keys: 10} }

const (
	idleTarget = 5 // times the p50 without the transaction
	idleBroker = "default"
	// idleTick is the time between two writes.
	idleTick = 50 * time.Millisecond
	// idlePatience is how long the delivery may go on once nothing more is written.
	idlePatience = time.Minute
)

// stream is one of the two databases in one run.
type stream struct {
	table     *fixture.Table
	watch     *stopwatch
	processor *relay.Processor
	began     time.Time
	delivered int64
	dead      int64
}

// Check implements Scenario.
func (i Idle) Check(int) error {
	if i.For < 3*idleTick || i.Rate < 100 || i.Keys < 1 || i.Payload < 0 {
		return fmt.Errorf("%d messages per second with %d keys for %s: use at least 100, 1 and %s, and a payload of at least 0 bytes",
			i.Rate, i.Keys, i.For, 3*idleTick)
	}
	return nil
}

// Run implements Scenario.
func (i Idle) Run(ctx context.Context, o *Options) error {
	return o.withDatabase(ctx, "idle_held", func(held *fixture.Database) error {
		return o.withDatabase(ctx, "idle_free", func(free *fixture.Database) error {
			for run := range o.Runs {
				if err := i.compare(ctx, o, held, free, run); err != nil {
					return err
				}
				o.logf("idle-transaction: run %d of %d: done", run+1, o.Runs)
			}
			return nil
		})
	})
}

func (i Idle) compare(ctx context.Context, o *Options, held, free *fixture.Database, run int) error {
	var streams [2]*stream
	for n, database := range []*fixture.Database{free, held} {
		var err error
		if streams[n], err = newStream(ctx, database, run); err != nil {
			return err
		}
	}
	release, err := i.hold(ctx, held, tableOf(run))
	if err != nil {
		return err
	}
	group, running := errgroup.WithContext(ctx)
	for _, s := range streams {
		group.Go(func() error { return s.run(running, o, i) })
	}
	if err := group.Wait(); err != nil {
		return errors.Join(err, release())
	}
	for _, s := range streams { // before the transaction ends
		if err := s.inspect(ctx); err != nil {
			return errors.Join(err, release())
		}
	}
	if err := release(); err != nil {
		return err
	}
	for _, s := range streams {
		if err := s.table.Drop(ctx); err != nil {
			return err
		}
	}
	return i.report(o, streams[0], streams[1])
}

func newStream(ctx context.Context, database *fixture.Database, run int) (*stream, error) {
	const connections = 4
	table, err := database.Table(ctx, tableOf(run), connections)
	if err != nil {
		return nil, err
	}
	s := &stream{table: table, watch: &stopwatch{Store: table.Store}}
	s.processor, err = relay.NewProcessor(relay.ProcessorConfig{Database: "bench", Broker: idleBroker, Store: s.watch, Target: confirm{}})
	return s, err
}

// hold opens a transaction that has a snapshot, and leaves it open until release is called.
func (i Idle) hold(ctx context.Context, database *fixture.Database, table string) (release func() error, err error) {
	tx, err := database.Admin.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return nil, err
	}
	release = func() error { return tx.Rollback(context.WithoutCancel(ctx)) }
	var rows int
	err = tx.QueryRow(ctx, "SELECT count(*) FROM pg_class").Scan(&rows)
	if err == nil && i.Writes {
		_, err = tx.Exec(ctx, "INSERT INTO "+table+` (message_id, target_broker, stream, type, ordering_key, payload)
			VALUES (gen_random_uuid(), $1, 's', 't', 'open', '')`, idleBroker)
	}
	if err != nil {
		return nil, errors.Join(err, release())
	}
	return release, nil
}

// run writes and delivers, until all that was written is delivered.
func (s *stream) run(ctx context.Context, o *Options, sizes Idle) error {
	delivering, stop := context.WithCancel(ctx)
	defer stop()
	var group errgroup.Group
	group.Go(func() error { return s.processor.Run(delivering) })
	s.began = time.Now()
	written, err := s.write(ctx, o, sizes)
	if err == nil {
		err = s.await(ctx, written)
	}
	stop()
	return errors.Join(err, group.Wait())
}

func (s *stream) write(ctx context.Context, o *Options, sizes Idle) (written int64, err error) {
	ticker := time.NewTicker(idleTick)
	defer ticker.Stop()
	total := int64(sizes.For.Seconds() * float64(sizes.Rate))
	for written < total {
		select {
		case <-ctx.Done():
			return written, ctx.Err()
		case <-ticker.C:
		}
		due := min(total, int64(time.Since(s.began).Seconds()*float64(sizes.Rate))) // late ticks are made up for
		fill := fixture.Fill{Rows: due - written, Brokers: []string{idleBroker}, Keys: []int64{sizes.Keys}, Prefix: "order-", Payload: sizes.Payload, Seed: o.Seed}
		if err := s.table.Fill(ctx, o.Log, fill); err != nil {
			return written, err
		}
		written = due
		s.processor.Wake(wakeup.Unknown)
	}
	return written, nil
}

// await waits until all is delivered.
func (s *stream) await(ctx context.Context, written int64) error {
	ctx, cancel := context.WithTimeout(ctx, idlePatience)
	defer cancel()
	ticker := time.NewTicker(idleTick)
	defer ticker.Stop()
	for {
		if s.delivered = s.processor.Stats().Published; s.delivered == written {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("scenario: %d of %d messages were delivered: %w", s.delivered, written, ctx.Err())
		case <-ticker.C:
		}
	}
}

// inspect counts what vacuum cannot remove.
func (s *stream) inspect(ctx context.Context) (err error) {
	if err = s.table.Vacuum(ctx); err != nil {
		return err
	}
	s.dead, err = s.table.Dead(ctx)
	return err
}

func (i Idle) report(o *Options, free, held *stream) error {
	if held.dead == 0 {
		return errors.New("scenario: the idle transaction held nothing back")
	}
	s := o.Report.Scenario("idle-transaction")
	type span struct {
		of   string
		from time.Duration
	}
	for _, span := range []span{{"whole run", 0}, {"last third", i.For * 2 / 3}} {
		freeTimes, freeRows := free.watch.since(free.began.Add(span.from))
		heldTimes, heldRows := held.watch.since(held.began.Add(span.from))
		if len(freeTimes) == 0 || len(heldTimes) == 0 {
			return fmt.Errorf("scenario: nothing was claimed in the %s", span.of)
		}
		for _, share := range []float64{0.5, 0.99} {
			name := fmt.Sprintf("p%.0f", 100*share)
			f, h := report.Percentile(freeTimes, share), report.Percentile(heldTimes, share)
			s.Add(span.of, name+" without", "ms", report.Milliseconds(f))
			s.Add(span.of, name+" with", "ms", report.Milliseconds(h))
			if ratio := float64(h) / float64(f); share == 0.5 {
				s.AddRatio(span.of, name+" ratio", ratio, idleTarget)
			} else {
				s.Add(span.of, name+" ratio", "x", ratio)
			}
		}
		s.Add(span.of, "rows per claim without", "rows", float64(freeRows)/float64(len(freeTimes)))
		s.Add(span.of, "rows per claim with", "rows", float64(heldRows)/float64(len(heldTimes)))
	}
	s.Add("after", "delivered without", "rows", float64(free.delivered))
	s.Add("after", "delivered with", "rows", float64(held.delivered))
	s.Add("after", "dead after VACUUM without", "rows", float64(free.dead))
	s.Add("after", "dead after VACUUM with", "rows", float64(held.dead))
	return nil
}
