package scenario

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/glebarez/sqlite"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
)

// bulk asks what events cost a transaction that imports very many rows, each with an event, beside
// the same import without the plugin.
type bulk struct{ rows, batch, payload int }

func newBulk(s *Sizes) Scenario {
	b := &bulk{}
	s.number(&b.rows, "rows", 50_000, 200, "rows of the transaction, each with an event")
	s.number(&b.batch, "batch", 1000, 50, "rows of a statement")
	s.number(&b.payload, "payload", 100, 100, "bytes of the data of an event")
	return b
}

// bulkLimits are how many times as long as the plain import it may take.
func bulkLimits() map[outbox.Dialect]float64 {
	return map[outbox.Dialect]float64{outbox.Postgres: 5, outbox.MySQL: 8, outbox.SQLite: 8}
}

// Run implements Scenario.
func (b *bulk) Run(ctx context.Context, o *Options) error {
	return o.eachRun("bulk", func(run int) error {
		for _, dialect := range dialects() {
			var took [2]time.Duration
			for _, i := range o.random(run).Perm(len(took)) {
				err := o.withTable(ctx, dialect, 1, func(table *fixture.Table) (err error) {
					took[i], err = b.measure(ctx, o, table, i == 1)
					return err
				})
				if err != nil {
					return fmt.Errorf("%s: %w", dialect, err)
				}
			}
			o.Report.Scenario("bulk").Add(string(dialect), "with events, times the plain import", "x", took[1].Seconds()/took[0].Seconds()).
				LimitAtMost(bulkLimits()[dialect], "")
		}
		return nil
	})
}

func (b *bulk) measure(ctx context.Context, o *Options, table *fixture.Table, events bool) (took time.Duration, err error) {
	dialector := map[outbox.Dialect]gorm.Dialector{
		outbox.Postgres: postgres.New(postgres.Config{Conn: table.DB}), outbox.MySQL: mysql.New(mysql.Config{Conn: table.DB}),
		outbox.SQLite: &sqlite.Dialector{Conn: table.DB},
	}[table.Dialect]
	db, err := gorm.Open(dialector, &gorm.Config{Logger: logger.Discard})
	if err != nil {
		return 0, err
	}
	if err := db.AutoMigrate(&order{}); err != nil {
		return 0, err
	}
	name := "plain"
	if events {
		name = "with events"
		catalog := envelope.NewCatalog("ordering")
		envelope.Register[note](catalog)
		if err := db.Use(gormplugin.New(catalog, outbox.Routing{}, gormplugin.WithLogger(slog.New(slog.DiscardHandler)))); err != nil {
			return 0, err
		}
	}
	orders, text := make([]*order, b.rows), strings.Repeat("x", b.payload)
	for i := range orders {
		orders[i] = &order{ID: int64(i), Note: "imported"}
		if events {
			orders[i].Raise(note{Seq: int64(i), Text: text})
		}
	}
	_, before := fixture.Memory()
	began := time.Now()
	err = db.WithContext(ctx).Transaction(func(tx *gorm.DB) error { return tx.CreateInBatches(orders, b.batch).Error })
	took = time.Since(began)
	_, after := fixture.Memory()
	s, of := o.Report.Scenario("bulk"), string(table.Dialect)
	s.Add(of, name, "s", took.Seconds())
	s.Add(of, name+", allocated", "MiB", float64(after-before)/(1<<20))
	want := map[bool]int{true: b.rows}[events]
	written, countErr := fixture.Get[int](ctx, table, "SELECT count(*) FROM {{table}}")
	if err = errors.Join(err, countErr); err == nil && written != want {
		err = fmt.Errorf("scenario: %d rows are in the outbox, want %d", written, want)
	}
	return took, err
}
