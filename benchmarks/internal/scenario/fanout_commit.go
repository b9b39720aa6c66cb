package scenario

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"golang.org/x/sync/errgroup"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// orderPlaced is the event of each commit.
type orderPlaced struct {
	OrderID string `json:"order_id"`
	Note    string `json:"note"`
}

// order is the row of each commit.
type order struct {
	ID       string `gorm:"primaryKey"`
	Customer string
	uow.Aggregate
}

// TableName implements GORM's Tabler.
func (order) TableName() string { return "orders" }

// committing is one number of brokers, or none: GORM without the plugin.
type committing struct {
	name    string
	brokers int
	pool    *sql.DB
	db      *gorm.DB
	table   *fixture.Table
	last    atomic.Int64 // number of an order
	times   []time.Duration
	cost    cost
}

// commits measures one run of the commit path with all numbers of brokers and without any.
func (f Fanout) commits(ctx context.Context, o *Options, database *fixture.Database, run int) (err error) {
	if _, err := database.Admin.Exec(ctx, "CREATE TABLE orders (id text PRIMARY KEY, customer text)"); err != nil {
		return err
	}
	var cases []*committing
	defer func() {
		for _, c := range cases {
			err = errors.Join(err, c.pool.Close())
		}
	}()
	for _, brokers := range append([]int{0}, f.Brokers...) {
		c, err := f.openCommitting(ctx, database, brokers, run)
		if err != nil {
			return err
		}
		cases = append(cases, c)
		if err := f.commit(ctx, c, f.Writers); err != nil { // caches and prepared statements
			return err
		}
		c.times = nil
	}
	if err := database.Checkpoint(ctx, o.Log); err != nil {
		return err
	}
	random := o.turns(run)
	for range f.Parts {
		for _, i := range random.Perm(len(cases)) {
			taken, err := spend(ctx, database, func() error { return f.commit(ctx, cases[i], f.Commits/f.Parts) })
			if err != nil {
				return err
			}
			cases[i].cost.add(taken)
		}
	}
	s := o.Report.Scenario("fanout")
	for _, c := range cases {
		if err := c.check(ctx); err != nil {
			return err
		}
		n, rate := int64(len(c.times)), float64(len(c.times))/c.cost.took.Seconds()
		s.Add(c.name, "rate", "tx/s", rate)
		s.Add(c.name, "p50", "ms", report.Milliseconds(report.Percentile(c.times, 0.5)))
		s.Add(c.name, "p99", "ms", report.Milliseconds(report.Percentile(c.times, 0.99)))
		c.cost.report(s, c.name, "tx", n)
		s.Add(c.name, "rate, of plain GORM", "x", rate*cases[0].cost.took.Seconds()/float64(len(cases[0].times)))
		if err := c.table.Drop(ctx); err != nil {
			return err
		}
	}
	_, err = database.Admin.Exec(ctx, "DROP TABLE orders")
	return err
}

// openCommitting opens a handle of its own, with the plugin where there are brokers.
func (f Fanout) openCommitting(ctx context.Context, database *fixture.Database, brokers, run int) (_ *committing, err error) {
	c := &committing{name: "commit, plain GORM", brokers: brokers}
	if c.table, err = database.Table(ctx, fmt.Sprintf("commits_%d_%d", run, brokers), 1); err != nil {
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
	c.pool.SetMaxOpenConns(f.Writers)
	c.pool.SetMaxIdleConns(f.Writers)
	if c.db, err = gorm.Open(postgres.New(postgres.Config{Conn: c.pool}), &gorm.Config{Logger: logger.Discard}); err != nil {
		return nil, err
	}
	if brokers == 0 {
		return c, nil
	}
	c.name = "commit, " + caseOf(brokers)
	events := envelope.NewCatalog("ordering")
	envelope.Register[orderPlaced](events, envelope.Published())
	routing := outbox.Routing{Table: c.table.Name()}
	for _, name := range brokerNames(brokers)[1:] {
		routing.External = append(routing.External, outbox.Route{Broker: name})
	}
	return c, c.db.Use(gormplugin.New(events, routing, gormplugin.WithLogger(slog.New(slog.DiscardHandler))))
}

// commit makes so many transactions, divided among the writers.
func (f Fanout) commit(ctx context.Context, c *committing, commits int) error {
	note := strings.Repeat("n", f.Payload)
	took := make([][]time.Duration, f.Writers)
	group, ctx := errgroup.WithContext(ctx)
	for n := range f.Writers {
		group.Go(func() error {
			for range commits / f.Writers {
				row := order{ID: fmt.Sprintf("order-%d-%d", c.brokers, c.last.Add(1)), Customer: strconv.Itoa(n)}
				began := time.Now()
				err := c.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
					if c.brokers > 0 {
						row.Raise(orderPlaced{OrderID: row.ID, Note: note})
					}
					return tx.Create(&row).Error
				})
				if err != nil {
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

// check looks whether each transaction has written a row for each broker, by one statement.
func (c *committing) check(ctx context.Context) error {
	rows, err := fixture.Get[int64](ctx, c.table, "SELECT count(*) FROM {{table}}")
	if err != nil {
		return err
	}
	if want := c.last.Load() * int64(c.brokers); rows != want {
		return fmt.Errorf("scenario: %s: %d rows are in the outbox, want %d", c.name, rows, want)
	}
	apart, err := fixture.Get[int64](ctx, c.table, readSQL("written_apart"), c.brokers)
	if err == nil && apart > 0 {
		err = fmt.Errorf("scenario: %s: the rows of %d events are not those of %d brokers, written by one statement", c.name, apart, c.brokers)
	}
	return err
}
