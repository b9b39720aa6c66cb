package scenario

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/mysql"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// MySQL asks how fast a backlog gets out of MySQL or MariaDB, into a broker that only confirms,
// beside a loop written by hand for the same table.
type MySQL struct {
	// Rows to drain in each run.
	Rows int
	// Payload of each row, in bytes.
	Payload int
	// Batch is the limit of a claim.
	Batch int
	// Keys is the number of ordering keys.
	Keys int
}

// DefaultMySQL are the sizes of a full run.
func DefaultMySQL() MySQL { return MySQL{Rows: 150_000, Payload: 500, Batch: 500, Keys: 1000} }

// ShortMySQL are sizes that only show whether the harness works.
func ShortMySQL() MySQL { return MySQL{Rows: 2_000, Payload: 100, Batch: 100, Keys: 20} }

// UsesMySQL implements MySQLUser.
func (MySQL) UsesMySQL() {}

// Check implements Scenario.
func (m MySQL) Check(int) error {
	if m.Rows < 1 || m.Payload < 1 || m.Batch < 1 || m.Keys < 1 {
		return fmt.Errorf("%d rows, payload %d, batch %d, %d keys: use at least 1 of each", m.Rows, m.Payload, m.Batch, m.Keys)
	}
	return nil
}

// mysqlBench is a server with a database of its own.
type mysqlBench struct {
	MySQL

	db  *sql.DB
	dsn string
}

// Run implements Scenario.
func (m MySQL) Run(ctx context.Context, o *Options) error {
	return o.withMySQL(ctx, func(b *mysqlBench) error {
		b.MySQL = m
		return b.measure(ctx, o)
	})
}

// withMySQL runs f with a database of its own, which is dropped afterwards.
func (o *Options) withMySQL(ctx context.Context, f func(*mysqlBench) error) (err error) {
	before, _, _ := strings.Cut(o.MySQL, "/")
	name := "fanout_bench_" + strings.ToLower(rand.Text()[:8])
	server, err := sql.Open("mysql", o.MySQL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	var version string
	if err := server.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return err
	}
	o.Report.Servers["MySQL"] = version
	if _, err := server.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		return err
	}
	defer func() {
		_, dropped := server.ExecContext(context.WithoutCancel(ctx), "DROP DATABASE "+name)
		err = errors.Join(err, dropped)
	}()
	b := &mysqlBench{dsn: before + "/" + name + "?interpolateParams=true"}
	if b.db, err = sql.Open("mysql", b.dsn); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.db.Close()) }()
	return f(b)
}

// redo is how many bytes the server has written to its redo log.
func (b *mysqlBench) redo(ctx context.Context) (bytes int64, err error) {
	var name string
	err = b.db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Innodb_os_log_written'").Scan(&name, &bytes)
	return bytes, err
}

func (b *mysqlBench) measure(ctx context.Context, o *Options) error {
	s, random := o.Report.Scenario("mysql"), mathrand.New(mathrand.NewPCG(o.Seed, 0))
	cases := []string{"by hand", "ordered", "unordered"}
	for run := range o.Runs {
		rates, logs := map[string]float64{}, map[string]float64{}
		for _, i := range random.Perm(len(cases)) {
			rate, redo, err := b.timed(ctx, cases[i], fmt.Sprintf("outbox_%d_%d", run, i))
			if err != nil {
				return fmt.Errorf("%s: %w", cases[i], err)
			}
			rates[cases[i]], logs[cases[i]] = rate, redo
			o.logf("mysql: %s: %.0f msgs/s", cases[i], rate)
		}
		for _, name := range cases {
			s.Add(name, "rate", "msgs/s", rates[name])
			s.Add(name, "redo log", "B/msg", logs[name])
			if name != cases[0] {
				s.Add(name, "of the loop by hand", "x", rates[name]/rates[cases[0]])
			}
		}
	}
	return nil
}

// timed fills a table, drains it, and looks whether all of it is published.
func (b *mysqlBench) timed(ctx context.Context, name, table string) (rate, redo float64, err error) {
	store, err := mysql.Open(ctx, b.dsn, table, mysql.WithMaxConns(6))
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if _, err := store.Migrate(ctx); err != nil {
		return 0, 0, err
	}
	if err := b.fill(ctx, table); err != nil {
		return 0, 0, err
	}
	before, err := b.redo(ctx)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if name == "by hand" {
		err = b.byHand(ctx, table)
	} else {
		err = b.drain(ctx, store, name == "unordered")
	}
	took := time.Since(began)
	if err != nil {
		return 0, 0, err
	}
	var published int
	if err := b.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+table+" WHERE status = 'published' AND attempts = 1").Scan(&published); err != nil {
		return 0, 0, err
	}
	if published != b.Rows {
		return 0, 0, fmt.Errorf("scenario: %d of %d rows are published", published, b.Rows)
	}
	after, err := b.redo(ctx)
	return float64(b.Rows) / took.Seconds(), float64(after-before) / float64(b.Rows), err
}

// fill writes pending rows.
func (b *mysqlBench) fill(ctx context.Context, table string) error {
	inserter, err := outbox.NewInserter(outbox.MySQL, table)
	if err != nil {
		return err
	}
	rows, payload := make([]outbox.Row, b.Rows), []byte(strings.Repeat("x", b.Payload))
	for i := range rows {
		rows[i] = outbox.Row{
			MessageID: uuid.New(), TargetBroker: drainBroker, Stream: "ordering::order", Type: "Ordering.OrderPlaced.v1",
			OrderingKey: "order-" + strconv.Itoa(i*7919%b.Keys), Payload: payload,
			Headers: `{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}`,
		}
	}
	return inserter.Insert(ctx, b.db, rows)
}

// drain drains with a processor as it is by default.
func (b *mysqlBench) drain(ctx context.Context, inner *mysql.Store, unordered bool) error {
	store := &tally{Store: inner, rows: int64(b.Rows), done: make(chan struct{})}
	processor, err := relay.NewProcessor(relay.ProcessorConfig{
		Database: "bench", Broker: drainBroker, Store: store, Target: confirm{}, Log: slog.New(slog.DiscardHandler),
		Policy: outbox.Policy{BatchSize: b.Batch, Unordered: unordered},
	})
	if err != nil {
		return err
	}
	running, stop := context.WithTimeout(ctx, drainPatience)
	defer stop()
	var group errgroup.Group
	group.Go(func() error { return processor.Run(running) })
	select {
	case <-store.done:
	case <-running.Done():
		err = fmt.Errorf("scenario: %d of %d rows were completed: %w", store.completed.Load(), b.Rows, context.Cause(running))
	}
	stop()
	return errors.Join(err, group.Wait())
}

// byHand drains as one would write it for this case alone: two workers, each of which marks a batch
// and claims another one in one transaction. It keeps no order, recovers no lease, stores no id of
// the broker, and an error ends it.
func (b *mysqlBench) byHand(ctx context.Context, table string) error {
	group, ctx := errgroup.WithContext(ctx)
	for worker := range 2 {
		group.Go(func() error {
			var done []string
			for shard, idle := worker, 0; idle < outbox.Shards; shard = (shard + 1) % outbox.Shards {
				ids, err := b.exchange(ctx, table, shard, done)
				if err != nil {
					return err
				}
				if idle++; len(ids) > 0 || len(done) > 0 {
					idle = 0
				}
				done = ids
			}
			return nil
		})
	}
	return group.Wait()
}

// exchange marks one batch and claims another one, which it reads.
func (b *mysqlBench) exchange(ctx context.Context, table string, shard int, done []string) (ids []string, err error) {
	tx, err := b.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // after the commit it does nothing
	if len(done) > 0 {
		if err := onRows(ctx, tx, "mysql_mark", table, done); err != nil {
			return nil, err
		}
	}
	ids, err = b.claim(ctx, tx, table, shard)
	if err == nil && len(ids) > 0 {
		err = onRows(ctx, tx, "mysql_take", table, ids)
	}
	if err != nil {
		return nil, err
	}
	return ids, tx.Commit()
}

// onRows runs a statement on a list of rows.
func onRows(ctx context.Context, tx *sql.Tx, name, table string, ids []string) error {
	text := driver.RenderSQL(strings.Replace(readSQL(name), "{{list}}", strings.Join(ids, ","), 1), table)
	_, err := tx.ExecContext(ctx, text)
	return err
}

func (b *mysqlBench) claim(ctx context.Context, tx *sql.Tx, table string, shard int) (ids []string, err error) {
	rows, err := tx.QueryContext(ctx, driver.RenderSQL(readSQL("mysql_claim"), table), drainBroker, shard, b.Batch)
	if err != nil {
		return nil, err
	}
	defer rows.Close() // Err tells
	for rows.Next() {
		var (
			id, stream, kind, key, headers string
			message, payload               []byte
		)
		if err := rows.Scan(&id, &message, &stream, &kind, &key, &headers, &payload); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}
