// Package scenario holds the benchmarks of the project.
package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// Options are common to all scenarios.
type Options struct {
	// Postgres is the server, as a URL of a user who may create databases.
	Postgres string
	// Redis is the server, as a URL; needed by scenarios that are [RedisUser].
	Redis string
	// MySQL is the server, as a DSN of a user who may create databases; needed by scenarios that are
	// [MySQLUser].
	MySQL string
	// RabbitMQ is the server, as a URL; needed where a backlog is drained to it.
	RabbitMQ string
	// Runs is how often everything is measured; what counts is the median.
	Runs int
	// Seed of what is left to chance.
	Seed uint64
	// Report gets what was measured.
	Report *report.Report
	// Log gets lines on how far it is.
	Log io.Writer
}

// A Scenario is one benchmark.
type Scenario interface {
	// Check refuses sizes with which the scenario makes no sense, before anything is written.
	Check(runs int) error
	// Run measures. What it created on the server is removed when it returns.
	Run(ctx context.Context, o *Options) error
}

// A RedisUser is a scenario that needs [Options.Redis].
type RedisUser interface{ UsesRedis() }

// A MySQLUser is a scenario that needs [Options.MySQL].
type MySQLUser interface{ UsesMySQL() }

// logf says how far it is.
func (o *Options) logf(format string, args ...any) {
	fmt.Fprintf(o.Log, "%s  "+format+"\n", append([]any{time.Now().UTC().Format(time.TimeOnly)}, args...)...)
}

// withDatabase runs f on a database of its own, which is dropped afterwards.
func (o *Options) withDatabase(ctx context.Context, label string, f func(*fixture.Database) error) (err error) {
	database, err := fixture.Create(ctx, o.Postgres, label)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, database.Drop()) }() //nolint:contextcheck // the context may be what has ended
	version, err := database.Version(ctx)
	if err != nil {
		return err
	}
	o.Report.Servers["PostgreSQL"] = version
	return f(database)
}

// tableOf names the table of one run.
func tableOf(run int) string { return "outbox_" + strconv.Itoa(run) }

// brokerMessageID is as long as those of Redis.
const brokerMessageID = "1780000000000-0"

// drain claims batch after batch from the shards of a broker in turn. Each exchange completes what
// the one before it took from the same shard, as a worker does.
type drain struct {
	store  driver.Delivery
	broker string
	batch  int
	wake   bool // there may be deferred rows
	shards []int
	turn   int
	open   map[int]*driver.Completion
}

// newDrain looks which shards have work.
func newDrain(ctx context.Context, store driver.Delivery, broker string, batch int) (*drain, error) {
	ready, err := store.Ready(ctx, broker, 0)
	if err != nil {
		return nil, err
	}
	if len(ready.Shards) == 0 {
		return nil, fmt.Errorf("scenario: broker %s has nothing to claim", broker)
	}
	return &drain{store: store, broker: broker, batch: batch, shards: ready.Shards, open: map[int]*driver.Completion{}}, nil
}

// step makes one exchange and returns how long it took.
func (d *drain) step(ctx context.Context) (*driver.Batch, time.Duration, error) {
	shard := d.shards[d.turn%len(d.shards)]
	d.turn++
	began := time.Now()
	exchanged, err := d.store.Exchange(ctx, d.open[shard], &driver.Claim{
		Broker: d.broker, Shard: shard, Limit: d.batch, Window: d.batch, Lease: 5 * time.Minute, Worker: "bench/1/default/" + d.broker + "/0", Wake: d.wake,
	})
	took := time.Since(began)
	if err != nil {
		return nil, 0, err
	}
	batch := &exchanged.Batch
	switch {
	case exchanged.Completed != nil && exchanged.Completed.Lost > 0:
		return nil, 0, fmt.Errorf("scenario: %d rows of a completion were lost", exchanged.Completed.Lost)
	case !slices.IsSortedFunc(batch.Messages, func(a, b driver.Message) int { return int(a.ID - b.ID) }):
		return nil, 0, errors.New("scenario: a batch is out of order")
	}
	d.open[shard] = published(batch)
	return batch, took, nil
}

// full makes one exchange that must come back with a full batch.
func (d *drain) full(ctx context.Context) (time.Duration, error) {
	batch, took, err := d.step(ctx)
	if err == nil && len(batch.Messages) != d.batch {
		err = fmt.Errorf("scenario: a claim of %s took %d rows, want %d", d.broker, len(batch.Messages), d.batch)
	}
	return took, err
}

// finish completes what is claimed.
func (d *drain) finish(ctx context.Context) error {
	for shard, completion := range d.open {
		if completion == nil {
			continue
		}
		if _, err := d.store.Exchange(ctx, completion, nil); err != nil {
			return err
		}
		delete(d.open, shard)
	}
	return nil
}

// published is the completion of a batch that the broker has confirmed; nil of an empty one.
func published(batch *driver.Batch) *driver.Completion {
	if len(batch.Messages) == 0 {
		return nil
	}
	completion := &driver.Completion{Lease: batch.Lease, Published: make([]driver.Delivered, len(batch.Messages))}
	for i := range batch.Messages {
		completion.Published[i] = driver.Delivered{ID: batch.Messages[i].ID, BrokerMessageID: brokerMessageID}
	}
	return completion
}
