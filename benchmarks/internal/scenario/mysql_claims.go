package scenario

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/mysql"
)

// MySQLClaims asks of MySQL or MariaDB what [Claims] and [Idle] ask of PostgreSQL: what the size of
// the table costs a claim, and what a transaction costs that was forgotten and holds the purge of
// old versions back. That purge is the whole server's, so claims without the transaction come first.
type MySQLClaims struct {
	// Rows of the large table, half of them published, and of the small one, all pending.
	Rows, Small int
	// Payload of each row, in bytes.
	Payload int
	// Batch is the limit of a claim, Keys the number of ordering keys.
	Batch, Keys int
	// Exchanges to measure with each table.
	Exchanges int
	// For is how long messages are written at the Rate, without and with the transaction.
	For  time.Duration
	Rate int
	// Writes has the transaction write a row of the outbox, as an application's may.
	Writes bool
}

// DefaultMySQLClaims are the sizes of a full run.
func DefaultMySQLClaims() MySQLClaims {
	return MySQLClaims{Rows: 10_000_000, Small: 300_000, Payload: 100, Batch: 500, Keys: 1000, Exchanges: 300, For: 90 * time.Second, Rate: 2000}
}

// ShortMySQLClaims are sizes that only show whether the harness works.
func ShortMySQLClaims() MySQLClaims {
	return MySQLClaims{Rows: 4000, Small: 1000, Payload: 100, Batch: 20, Keys: 50, Exchanges: 10, For: 500 * time.Millisecond, Rate: 500}
}

// UsesMySQL implements MySQLUser.
func (MySQLClaims) UsesMySQL() {}

// Check implements Scenario.
func (m MySQLClaims) Check(runs int) error {
	need := (m.Exchanges + claimsWarm) * m.Batch * 5 / 4
	switch {
	case m.Batch < 1 || m.Keys < 1 || m.Exchanges < 1 || m.Payload < 1 || m.Rate < 100 || m.For < 3*idleTick:
		return fmt.Errorf("batch %d, %d keys, %d exchanges, payload %d, %d messages per second for %s: use at least 1 of each, 100 per second and %s",
			m.Batch, m.Keys, m.Exchanges, m.Payload, m.Rate, m.For, 3*idleTick)
	case m.Small < need || m.Rows/2 < need*runs:
		return fmt.Errorf("%d runs of %d exchanges of %d rows need a small table of %d rows and a large one of %d", runs, m.Exchanges, m.Batch, need, 2*need*runs)
	default:
		return nil
	}
}

// Run implements Scenario.
func (m MySQLClaims) Run(ctx context.Context, o *Options) error {
	return o.withMySQL(ctx, func(b *mysqlBench) error {
		large, err := m.table(ctx, b, o, "large", m.Rows/2, m.Rows/2)
		if err != nil {
			return err
		}
		defer large.Close()
		for run := range o.Runs {
			if err := m.sizes(ctx, b, o, large, run); err != nil {
				return fmt.Errorf("size of the table: %w", err)
			}
			if err := m.forgotten(ctx, b, o, run); err != nil {
				return fmt.Errorf("a forgotten transaction: %w", err)
			}
			o.logf("mysql-claims: run %d of %d: done", run+1, o.Runs)
		}
		return nil
	})
}

// table makes a table with so many published and so many pending rows.
func (m MySQLClaims) table(ctx context.Context, b *mysqlBench, o *Options, name string, published, pending int) (*mysql.Store, error) {
	store, err := mysql.Open(ctx, b.dsn, name, mysql.WithMaxConns(6))
	if err != nil {
		return nil, err
	}
	if _, err := store.Migrate(ctx); err != nil {
		return nil, err
	}
	const piece = 100_000
	for done, all := 0, published+pending; done < all; done += piece {
		// Ids of messages that grow, so that no index is filled at random.
		_, err := b.db.ExecContext(ctx, strings.ReplaceAll(readSQL("mysql_fill"), "{{table}}", name),
			m.Keys, strings.Repeat("x", m.Payload), published, published, published, published, done, min(piece, all-done))
		if err != nil {
			return nil, fmt.Errorf("fill %s: %w", name, err)
		}
		if done%1_000_000 == 0 && done > 0 {
			o.logf("mysql-claims: %s: %d of %d rows written", name, done, all)
		}
	}
	_, err = b.db.ExecContext(ctx, "ANALYZE TABLE "+name)
	return store, err
}

// sizes drains both tables in turn.
func (m MySQLClaims) sizes(ctx context.Context, b *mysqlBench, o *Options, large *mysql.Store, run int) error {
	small, err := m.table(ctx, b, o, fmt.Sprintf("small_%d", run), 0, m.Small)
	if err != nil {
		return err
	}
	defer small.Close()
	var sides [2]side
	for i, store := range []*mysql.Store{large, small} {
		if sides[i].drain, err = newDrain(ctx, store, drainBroker, m.Batch); err != nil {
			return err
		}
		if err := sides[i].block(ctx, claimsWarm); err != nil {
			return err
		}
		sides[i].times = nil
	}
	random := rand.New(rand.NewPCG(o.Seed, uint64(run))) //nolint:gosec // not negative
	for done := 0; done < m.Exchanges; done += claimsBlock {
		for _, i := range random.Perm(len(sides)) {
			if err := sides[i].block(ctx, min(claimsBlock, m.Exchanges-done)); err != nil {
				return err
			}
		}
	}
	s := o.Report.Scenario("mysql-claims")
	for _, share := range []float64{0.5, 0.99} {
		name := fmt.Sprintf("p%.0f", 100*share)
		l, m := report.Percentile(sides[0].times, share), report.Percentile(sides[1].times, share)
		s.Add("size", name+" small", "ms", report.Milliseconds(m))
		s.Add("size", name+" large", "ms", report.Milliseconds(l))
		s.Add("size", name+" ratio", "x", float64(l)/float64(m))
	}
	for i := range sides {
		if err := sides[i].drain.finish(ctx); err != nil {
			return err
		}
	}
	return nil
}

// forgotten writes and delivers at a steady rate, first without and then with a transaction that
// keeps a snapshot.
func (m MySQLClaims) forgotten(ctx context.Context, b *mysqlBench, o *Options, run int) error {
	s := o.Report.Scenario("mysql-claims")
	var p50, last [2]time.Duration
	for i, name := range []string{"without", "with"} {
		store, err := m.table(ctx, b, o, fmt.Sprintf("steady_%d_%d", run, i), 0, 0)
		if err != nil {
			return err
		}
		end := func() error { return nil }
		if name == "with" {
			written := ""
			if m.Writes {
				written = fmt.Sprintf("steady_%d_%d", run, i)
			}
			if end, err = b.forget(ctx, written); err != nil {
				return err
			}
		}
		times, err := m.steady(ctx, b, store, fmt.Sprintf("steady_%d_%d", run, i))
		if err := errors.Join(err, end(), store.Close()); err != nil {
			return err
		}
		last[i] = report.Percentile(times[len(times)*2/3:], 0.5)
		p50[i] = report.Percentile(times, 0.5)
		s.Add("transaction", "p50 "+name, "ms", report.Milliseconds(p50[i]))
		s.Add("transaction", "p99 "+name, "ms", report.Milliseconds(report.Percentile(times, 0.99)))
	}
	s.Add("transaction", "p50 ratio", "x", float64(p50[1])/float64(p50[0]))
	s.Add("transaction", "p50 ratio of the last third", "x", float64(last[1])/float64(last[0]))
	return nil
}

// forget begins a transaction that keeps a snapshot, and has written to a table where one is named; it
// returns what ends it.
func (b *mysqlBench) forget(ctx context.Context, written string) (end func() error, err error) {
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if _, err = conn.ExecContext(ctx, "START TRANSACTION WITH CONSISTENT SNAPSHOT"); err == nil && written != "" {
		var inserter *outbox.Inserter
		if inserter, err = outbox.NewInserter(outbox.MySQL, written); err == nil {
			err = inserter.Insert(ctx, conn, []outbox.Row{{
				MessageID: uuid.New(), TargetBroker: drainBroker, Stream: "ordering::order", Type: "Ordering.OrderPlaced.v1", Payload: []byte("{}"),
			}})
		}
	}
	return func() error {
		_, err := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		return errors.Join(err, conn.Close())
	}, err
}

// steady writes for a time and delivers meanwhile; it returns how long claims took that found
// something.
func (m MySQLClaims) steady(ctx context.Context, b *mysqlBench, store *mysql.Store, table string) (times []time.Duration, err error) {
	inserter, err := outbox.NewInserter(outbox.MySQL, table)
	if err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(1, 1))
	tick := func(ctx context.Context) error {
		rows := make([]outbox.Row, m.Rate*int(idleTick/time.Millisecond)/1000)
		for i := range rows {
			rows[i] = outbox.Row{
				MessageID: uuid.New(), TargetBroker: drainBroker, Stream: "ordering::order", Type: "Ordering.OrderPlaced.v1",
				OrderingKey: fmt.Sprint("order-", random.IntN(m.Keys)), Payload: []byte(strings.Repeat("x", m.Payload)),
			}
		}
		return inserter.Insert(ctx, b.db, rows)
	}
	if err := tick(ctx); err != nil {
		return nil, err
	}
	var group errgroup.Group
	writing, stop := context.WithTimeout(ctx, m.For)
	defer stop()
	group.Go(func() error {
		ticker := time.NewTicker(idleTick)
		defer ticker.Stop()
		for {
			select {
			case <-writing.Done():
				return nil
			case <-ticker.C:
				if err := tick(ctx); err != nil {
					return err
				}
			}
		}
	})
	d := &drain{store: store, broker: drainBroker, batch: m.Batch, shards: []int{0, 1, 2, 3}, open: map[int]*driver.Completion{}}
	for writing.Err() == nil && err == nil {
		batch, took, stepped := d.step(ctx)
		if err = stepped; err == nil && len(batch.Messages) > 0 {
			times = append(times, took)
		} else if err == nil {
			time.Sleep(idleTick / 10)
		}
	}
	if err == nil {
		err = d.finish(ctx)
	}
	if written := group.Wait(); err == nil {
		err = written
	}
	return times, err
}
