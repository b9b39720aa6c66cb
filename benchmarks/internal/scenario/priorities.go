package scenario

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	"golang.org/x/sync/errgroup"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/mysql"
	"github.com/gorm-fanout/fanout/outbox/postgres"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// Priorities asks what a mixture of priorities costs a drain: a backlog of which a part has a low
// priority, beside one in which all are alike, out of PostgreSQL and out of MySQL or MariaDB, into a
// broker that only confirms.
type Priorities struct {
	// Rows to drain in each case.
	Rows int
	// Payload of each row, in bytes.
	Payload int
	// Batch is the limit of a claim.
	Batch int
	// Keys are the numbers of ordering keys.
	Keys []int64
	// Shares are how many of 100 rows have a low priority.
	Shares []int64
}

// DefaultPriorities are the sizes of a full run.
func DefaultPriorities() Priorities {
	return Priorities{Rows: 100_000, Payload: 500, Batch: 500, Keys: []int64{24, 100, 1000}, Shares: []int64{1, 20, 50, 99}}
}

// ShortPriorities are sizes that only show whether the harness works.
func ShortPriorities() Priorities {
	return Priorities{Rows: 1_000, Payload: 100, Batch: 100, Keys: []int64{24}, Shares: []int64{20}}
}

// mixedTarget is the part of its rate that a drain should keep.
const mixedTarget = 0.8

// UsesMySQL implements MySQLUser.
func (Priorities) UsesMySQL() {}

// Check implements Scenario.
func (p Priorities) Check(int) error {
	bad := func(n int64) bool { return n < 1 }
	if p.Rows < 1 || p.Payload < 1 || p.Batch < 1 || slices.ContainsFunc(p.Keys, bad) || slices.ContainsFunc(p.Shares, bad) {
		return fmt.Errorf("%d rows, payload %d, batch %d, keys %v, shares %v: use at least 1 of each", p.Rows, p.Payload, p.Batch, p.Keys, p.Shares)
	}
	return nil
}

// mixedBench is one database.
type mixedBench struct {
	Priorities

	name    string
	dialect outbox.Dialect
	db      *sql.DB
	open    func(ctx context.Context, table string) (driver.Store, error)
}

// Run implements Scenario.
func (p Priorities) Run(ctx context.Context, o *Options) error {
	s := o.Report.Scenario("priorities")
	err := o.withDatabase(ctx, "priorities", func(d *fixture.Database) (err error) {
		db, err := sql.Open("pgx", d.URL)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, db.Close()) }()
		b := &mixedBench{Priorities: p, name: "PostgreSQL", dialect: outbox.Postgres, db: db, open: func(ctx context.Context, table string) (driver.Store, error) {
			return postgres.Open(ctx, d.URL, table)
		}}
		return b.measure(ctx, o, s)
	})
	if err != nil {
		return err
	}
	return o.withMySQL(ctx, func(m *mysqlBench) error {
		b := &mixedBench{Priorities: p, name: "MySQL", dialect: outbox.MySQL, db: m.db, open: func(ctx context.Context, table string) (driver.Store, error) {
			return mysql.Open(ctx, m.dsn, table, mysql.WithMaxConns(6))
		}}
		return b.measure(ctx, o, s)
	})
}

func (b *mixedBench) measure(ctx context.Context, o *Options, s *report.Scenario) error {
	random := mathrand.New(mathrand.NewPCG(o.Seed, 0))
	shares := append([]int64{0}, b.Shares...)
	for run := range o.Runs {
		for _, keys := range b.Keys {
			rates := map[int64]float64{}
			for _, i := range random.Perm(len(shares)) {
				rate, err := b.timed(ctx, keys, shares[i], fmt.Sprintf("outbox_%d_%d_%d", run, keys, i))
				if err != nil {
					return fmt.Errorf("%s, %d keys, %d %% of low priority: %w", b.name, keys, shares[i], err)
				}
				rates[shares[i]] = rate
				o.logf("priorities: %s, %d keys, %d %% of low priority: %.0f msgs/s", b.name, keys, shares[i], rate)
			}
			for _, share := range shares {
				label := fmt.Sprintf("%s, %d keys, %d %% low", b.name, keys, share)
				s.Add(label, "rate", "msgs/s", rates[share])
				if share > 0 {
					s.AddRatioAtLeast(label, "of the rate without", rates[share]/rates[0], mixedTarget)
				}
			}
		}
	}
	return nil
}

// timed fills a table, drains it with a processor as it is by default, and looks whether all of it is
// published.
func (b *mixedBench) timed(ctx context.Context, keys, share int64, table string) (rate float64, err error) {
	inner, err := b.open(ctx, table)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, inner.Close()) }()
	if _, err := inner.Migrate(ctx); err != nil {
		return 0, err
	}
	if err := b.fill(ctx, keys, share, table); err != nil {
		return 0, err
	}
	store := &tally{Store: inner, rows: int64(b.Rows), done: make(chan struct{})}
	processor, err := relay.NewProcessor(relay.ProcessorConfig{
		Database: "bench", Broker: drainBroker, Store: store, Target: confirm{}, Log: slog.New(slog.DiscardHandler), Policy: outbox.Policy{BatchSize: b.Batch},
	})
	if err != nil {
		return 0, err
	}
	running, stop := context.WithTimeout(ctx, drainPatience)
	defer stop()
	var group errgroup.Group
	began := time.Now()
	group.Go(func() error { return processor.Run(running) })
	select {
	case <-store.done:
	case <-running.Done():
		err = fmt.Errorf("scenario: %d of %d rows were completed: %w", store.completed.Load(), b.Rows, context.Cause(running))
	}
	took := time.Since(began)
	stop()
	if err := errors.Join(err, group.Wait()); err != nil {
		return 0, err
	}
	var published int
	if err := b.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+table+" WHERE status = 'published' AND attempts = 1").Scan(&published); err != nil {
		return 0, err
	}
	if published != b.Rows {
		return 0, fmt.Errorf("scenario: %d of %d rows are published", published, b.Rows)
	}
	return float64(b.Rows) / took.Seconds(), nil
}

// fill writes pending rows, of which a share has a low priority, spread over all keys.
func (b *mixedBench) fill(ctx context.Context, keys, share int64, table string) error {
	inserter, err := outbox.NewInserter(b.dialect, table)
	if err != nil {
		return err
	}
	rows, payload := make([]outbox.Row, b.Rows), []byte(strings.Repeat("x", b.Payload))
	for i := range rows {
		rows[i] = outbox.Row{
			MessageID: uuid.New(), TargetBroker: drainBroker, Stream: "ordering::order", Type: "Ordering.OrderPlaced.v1",
			OrderingKey: "order-" + strconv.FormatInt(int64(i)*7919%keys, 10), Payload: payload,
		}
		if int64(i)*37%100 < share { // neither in step with the keys nor in blocks
			rows[i].Priority = -1
		}
	}
	if err := inserter.Insert(ctx, b.db, rows); err != nil {
		return err
	}
	if b.dialect == outbox.Postgres {
		_, err = b.db.ExecContext(ctx, "VACUUM ANALYZE "+table)
	}
	return err
}
