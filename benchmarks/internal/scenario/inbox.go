package scenario

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"golang.org/x/sync/errgroup"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
)

// Inbox asks what it costs to handle each message once: inbox.Handle, beside transactions that are
// written by hand for the same, with GORM and with database/sql. Each message changes one row of a
// projection.
type Inbox struct {
	// Messages that each case handles in each run, cut into Parts between which the cases take
	// turns.
	Messages, Parts int
	// Workers are the numbers of goroutines, each with a connection.
	Workers []int
	// Projections are the rows that the messages change in turn.
	Projections int
}

// DefaultInbox are the sizes of a full run.
func DefaultInbox() Inbox {
	return Inbox{Messages: 8000, Parts: 20, Workers: []int{1, 4, 8}, Projections: 1000}
}

// ShortInbox are sizes that only show whether the harness works.
func ShortInbox() Inbox { return Inbox{Messages: 80, Parts: 2, Workers: []int{1, 4}, Projections: 10} }

// inboxTarget is the least share of what a transaction written by hand reaches.
const inboxTarget = 0.9

// Check implements Scenario.
func (i Inbox) Check(int) error {
	if i.Messages < 1 || i.Parts < 1 || i.Projections < 1 || len(i.Workers) == 0 {
		return fmt.Errorf("%d messages in %d parts, %d projections, %d numbers of workers: use at least 1", i.Messages, i.Parts, i.Projections, len(i.Workers))
	}
	for _, workers := range i.Workers {
		if workers < 1 || i.Messages%(i.Parts*workers) != 0 {
			return fmt.Errorf("%d messages cannot be dealt out to %d parts with %d workers: use a multiple of %d", i.Messages, i.Parts, workers, i.Parts*max(workers, 1))
		}
	}
	return nil
}

// Run implements Scenario.
func (i Inbox) Run(ctx context.Context, o *Options) error {
	return o.withDatabase(ctx, "inbox", func(database *fixture.Database) error {
		for run := range o.Runs {
			for _, workers := range i.Workers {
				if err := i.measure(ctx, o, database, run, workers); err != nil {
					return err
				}
				o.logf("inbox: run %d of %d: %d workers: done", run+1, o.Runs, workers)
			}
		}
		return nil
	})
}

// The ways to handle a message.
const (
	byInbox = "inbox.Handle"
	byGORM  = "by hand, GORM"
	bySQL   = "by hand, database/sql"
)

// consuming is one way to handle messages.
type consuming struct {
	name   string
	inbox  string // table
	rows   string // table of the projection
	pool   *sql.DB
	db     *gorm.DB
	handle func(ctx context.Context, m *inbox.Message, row int) error
	last   atomic.Int64
	cost   cost
	times  []time.Duration
}

func (i Inbox) measure(ctx context.Context, o *Options, database *fixture.Database, run, workers int) (err error) {
	var cases []*consuming
	defer func() {
		for _, c := range cases {
			err = errors.Join(err, c.pool.Close())
		}
	}()
	for n, name := range []string{byInbox, byGORM, bySQL} {
		c, err := i.open(ctx, database, name, fmt.Sprintf("%d_%d_%d", run, workers, n), workers)
		if err != nil {
			return err
		}
		cases = append(cases, c)
		if err := i.consume(ctx, c, workers, workers*10); err != nil { // caches and prepared statements
			return err
		}
		c.times = nil
	}
	if err := database.Checkpoint(ctx, o.Log); err != nil {
		return err
	}
	random := o.turns(run)
	for range i.Parts {
		for _, n := range random.Perm(len(cases)) {
			taken, err := spend(ctx, database, func() error { return i.consume(ctx, cases[n], workers, i.Messages/i.Parts) })
			if err != nil {
				return err
			}
			cases[n].cost.add(taken)
		}
	}
	return i.report(ctx, o.Report.Scenario("inbox"), database, cases, workers)
}

func (i Inbox) report(ctx context.Context, s *report.Scenario, database *fixture.Database, cases []*consuming, workers int) error {
	rates := map[string]float64{}
	label := strconv.Itoa(workers) + " workers: "
	if workers == 1 {
		label = "1 worker: "
	}
	for _, c := range cases {
		if err := c.check(ctx, database); err != nil {
			return err
		}
		rates[c.name] = float64(len(c.times)) / c.cost.took.Seconds()
		s.Add(label+c.name, "rate", "msg/s", rates[c.name])
		s.Add(label+c.name, "p50", "ms", report.Milliseconds(report.Percentile(c.times, 0.5)))
		s.Add(label+c.name, "p99", "ms", report.Milliseconds(report.Percentile(c.times, 0.99)))
		c.cost.report(s, label+c.name, "msg", int64(len(c.times)))
	}
	s.AddRatioAtLeast(label+byInbox, "of "+byGORM, rates[byInbox]/rates[byGORM], inboxTarget)
	s.AddRatioAtLeast(label+byInbox, "of "+bySQL, rates[byInbox]/rates[bySQL], inboxTarget)
	return nil
}

// open makes the tables of a case and a pool with a connection for each worker.
func (i Inbox) open(ctx context.Context, database *fixture.Database, name, suffix string, workers int) (_ *consuming, err error) {
	c := &consuming{name: name, inbox: "seen_" + suffix, rows: "projection_" + suffix}
	if _, err := database.Admin.Exec(ctx, "CREATE TABLE "+c.rows+" (id int PRIMARY KEY, total bigint NOT NULL) WITH (fillfactor = 50)"); err != nil {
		return nil, err
	}
	if _, err := database.Admin.Exec(ctx, "INSERT INTO "+c.rows+" SELECT n, 0 FROM generate_series(0, $1::int - 1) AS n", i.Projections); err != nil {
		return nil, err
	}
	if c.pool, err = sql.Open("pgx", database.URL); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.pool.Close())
		}
	}()
	c.pool.SetMaxOpenConns(workers)
	c.pool.SetMaxIdleConns(workers)
	if c.db, err = gorm.Open(postgres.New(postgres.Config{Conn: c.pool}), &gorm.Config{Logger: logger.Discard}); err != nil {
		return nil, err
	}
	if name == byInbox {
		c.handle = c.byInbox
		_, err = inbox.Migrate(ctx, c.db, inbox.WithTable(c.inbox))
		return c, err
	}
	if c.handle = c.byGORM; name == bySQL {
		c.handle = c.bySQL
	}
	_, err = database.Admin.Exec(ctx, "CREATE TABLE "+c.inbox+" (message_id uuid PRIMARY KEY)")
	return c, err
}

// consume handles so many fresh messages, divided among the workers.
func (i Inbox) consume(ctx context.Context, c *consuming, workers, messages int) error {
	took := make([][]time.Duration, workers)
	group, ctx := errgroup.WithContext(ctx)
	for n := range workers {
		group.Go(func() error {
			for range messages / workers {
				key, err := uuid.NewV7()
				if err != nil {
					return err
				}
				m := &inbox.Message{
					Consumer: "billing", Key: key, ID: key.String(), Type: "Ordering.OrderPlaced.v1", Source: "orders", Envelope: &envelope.Message{},
					Payload: []byte(`{}`),
				}
				m.Envelope.Metadata.Headers = envelope.Headers{ID: key, Type: m.Type, Stream: "orders", Time: time.Now()}
				row := int(c.last.Add(1)) % i.Projections
				began := time.Now()
				if err := c.handle(ctx, m, row); err != nil {
					return err
				}
				took[n] = append(took[n], time.Since(began))
			}
			return nil
		})
	}
	err := group.Wait()
	for _, times := range took {
		c.times = append(c.times, times...)
	}
	return err
}

var errNotOnce = errors.New("scenario: a message was handled before")

func (c *consuming) byInbox(ctx context.Context, m *inbox.Message, row int) error {
	outcome, err := inbox.Handle(ctx, c.db, m, func(tx *gorm.DB) error {
		return tx.Exec("UPDATE "+c.rows+" SET total = total + 1 WHERE id = ?", row).Error
	}, inbox.WithTable(c.inbox))
	if err == nil && outcome != inbox.Handled {
		return errNotOnce
	}
	return err
}

func (c *consuming) byGORM(ctx context.Context, m *inbox.Message, row int) error {
	return c.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		seen := tx.Exec("INSERT INTO "+c.inbox+" (message_id) VALUES (?) ON CONFLICT DO NOTHING", m.ID)
		if seen.Error != nil {
			return seen.Error
		}
		if seen.RowsAffected == 0 {
			return errNotOnce
		}
		return tx.Exec("UPDATE "+c.rows+" SET total = total + 1 WHERE id = ?", row).Error
	})
}

func (c *consuming) bySQL(ctx context.Context, m *inbox.Message, row int) error {
	tx, err := c.pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()                                                                              // after the commit it does nothing
	seen, err := tx.ExecContext(ctx, "INSERT INTO "+c.inbox+" (message_id) VALUES ($1) ON CONFLICT DO NOTHING", m.ID) //nolint:gosec // a name of our own
	if err != nil {
		return err
	}
	if n, err := seen.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, errNotOnce)
	}
	if _, err := tx.ExecContext(ctx, "UPDATE "+c.rows+" SET total = total + 1 WHERE id = $1", row); err != nil { //nolint:gosec // a name of our own
		return err
	}
	return tx.Commit()
}

// check makes sure that each message was handled once, and removes the tables.
func (c *consuming) check(ctx context.Context, database *fixture.Database) error {
	var effects, seen int64
	err := database.Admin.QueryRow(ctx, "SELECT (SELECT sum(total) FROM "+c.rows+")::bigint, (SELECT count(*) FROM "+c.inbox+")").Scan(&effects, &seen)
	if err != nil {
		return err
	}
	if want := c.last.Load(); effects != want || seen != want {
		return fmt.Errorf("scenario: %s: %d messages have had %d effects, and %d are noted", c.name, want, effects, seen)
	}
	_, err = database.Admin.Exec(ctx, "DROP TABLE "+c.rows+", "+c.inbox)
	return err
}
