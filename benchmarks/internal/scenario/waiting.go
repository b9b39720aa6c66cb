package scenario

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// Waiting asks how long very many rows that wait hold up others: a processor begins with a table in
// which they stand before a stream of messages of other keys, one by one.
type Waiting struct {
	// Rows that wait.
	Rows int64
	// Payload of each row, in bytes.
	Payload int
	// Others is how many messages of other keys there are, and Every the time between two.
	Others int
	Every  time.Duration
}

// DefaultWaiting are the sizes of a full run.
func DefaultWaiting() Waiting {
	return Waiting{Rows: 1_000_000, Payload: 100, Others: 300, Every: 100 * time.Millisecond}
}

// ShortWaiting are sizes that only show whether the harness works.
func ShortWaiting() Waiting {
	return Waiting{Rows: 2000, Payload: 50, Others: 5, Every: 10 * time.Millisecond}
}

// waitingCases are what waits: SQL for the key of row n, and for its time.
var waitingCases = []struct{ name, key, at string }{ //nolint:gochecknoglobals // constant
	{"scheduled, each with a key", "'key-' || n", "now() + interval '1 day'"},
	{"scheduled, without keys", "NULL", "now() + interval '1 day'"},
	{"one head and its followers", "'head'", "CASE WHEN n = 1 THEN now() + interval '1 day' END"},
}

// Check implements Scenario.
func (w Waiting) Check(int) error {
	if w.Rows < 1 || w.Others < 1 || w.Payload < 0 || w.Every <= 0 {
		return fmt.Errorf("%d rows that wait, %d others every %s, payload %d: use at least 1 of each, and a payload of at least 0 bytes", w.Rows, w.Others, w.Every, w.Payload)
	}
	return nil
}

// Run implements Scenario.
func (w Waiting) Run(ctx context.Context, o *Options) error {
	return o.withDatabase(ctx, "waiting", func(database *fixture.Database) error {
		for run := range o.Runs {
			for i := range waitingCases {
				table, err := database.Table(ctx, tableOf(run*len(waitingCases)+i), 4)
				if err != nil {
					return err
				}
				if err := errors.Join(w.measure(ctx, o, table, i), table.Drop(ctx)); err != nil {
					return fmt.Errorf("%s: %w", waitingCases[i].name, err)
				}
			}
		}
		return nil
	})
}

// announcing is a broker that confirms and notes which messages of the others have come.
type announcing struct {
	confirm

	came chan string
}

// Publish implements brokers.Broker.
func (a announcing) Publish(ctx context.Context, messages []brokers.Message) []brokers.Result {
	for i := range messages {
		if strings.HasPrefix(messages[i].OrderingKey, "other-") {
			a.came <- messages[i].OrderingKey
		}
	}
	return a.confirm.Publish(ctx, messages)
}

func (w Waiting) measure(ctx context.Context, o *Options, table *fixture.Table, i int) error {
	waits := waitingCases[i]
	text := `INSERT INTO {{table}} (message_id, target_broker, stream, type, ordering_key, available_at, payload)
		SELECT gen_random_uuid(), $2, 's', 't', ` + waits.key + `, ` + waits.at + `, convert_to(repeat('x', $3), 'UTF8') FROM generate_series(1, $1::bigint) AS n`
	if err := errors.Join(table.Exec(ctx, text, w.Rows, drainBroker, w.Payload), table.Vacuum(ctx)); err != nil {
		return err
	}
	broker := announcing{came: make(chan string, w.Others)}
	processor, err := relay.NewProcessor(relay.ProcessorConfig{
		Database: "bench", Broker: drainBroker, Store: table.Store, Target: broker, Log: slog.New(slog.DiscardHandler), Policy: outbox.Policy{},
	})
	if err != nil {
		return err
	}
	running, stop := context.WithTimeout(ctx, drainPatience)
	defer stop()
	var group errgroup.Group
	written := make(map[string]time.Time, w.Others)
	for n := range 4 { // one for each shard, as a rule, behind all that waits
		key := fmt.Sprintf("other-first-%d", n)
		if err := w.other(ctx, table, key); err != nil {
			return err
		}
		written[key] = time.Now()
	}
	began := time.Now()
	group.Go(func() error { return processor.Run(running) })
	times := make([]time.Duration, 0, w.Others)
	ticks := time.NewTicker(w.Every)
	defer ticks.Stop()
	for n := 0; len(times) < w.Others+4 && err == nil; {
		select {
		case <-ticks.C:
			if key := fmt.Sprintf("other-%d", n); n < w.Others {
				written[key] = time.Now()
				err = w.other(ctx, table, key)
				n++
			}
		case key := <-broker.came:
			at := time.Now()
			if times = append(times, at.Sub(written[key])); len(times) == 4 {
				o.Report.Scenario("waiting").Add(waits.name, "until four others came", "ms", report.Milliseconds(at.Sub(began)))
			}
		case <-running.Done():
			err = fmt.Errorf("scenario: %d of %d others came: %w", len(times), w.Others+4, context.Cause(running))
		}
	}
	stop()
	if err := errors.Join(err, group.Wait()); err != nil {
		return err
	}
	s := o.Report.Scenario("waiting")
	s.Add(waits.name, "others: p50", "ms", report.Milliseconds(report.Percentile(times, 0.5)))
	s.Add(waits.name, "others: p99", "ms", report.Milliseconds(report.Percentile(times, 0.99)))
	s.Add(waits.name, "others: slowest", "ms", report.Milliseconds(report.Percentile(times, 1)))
	o.logf("waiting: %s: done", waits.name)
	return nil
}

// other writes one message that can go.
func (w Waiting) other(ctx context.Context, table *fixture.Table, key string) error {
	return table.Exec(ctx, `INSERT INTO {{table}} (message_id, target_broker, stream, type, ordering_key, payload)
		VALUES (gen_random_uuid(), $1, 's', 't', $2, convert_to(repeat('x', $3), 'UTF8'))`, drainBroker, key, w.Payload)
}
