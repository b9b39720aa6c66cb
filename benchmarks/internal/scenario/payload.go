package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/outbox"
)

// Payload asks what large messages cost: how fast they are drained, what is written to the
// database's log for each, and how much memory the process needs. Payloads cannot be compressed;
// PostgreSQL keeps those above some 2 kB out of line.
type Payload struct {
	// Sizes of a payload to measure with, in bytes.
	Sizes []int
	// Rows to drain in each run, with each size; fewer where they would hold more than Bytes.
	Rows, Bytes int64
	// Keys is how many ordering keys there are.
	Keys int64
}

// DefaultPayload are the sizes of a full run.
func DefaultPayload() Payload {
	return Payload{Sizes: []int{100, 500, 4 << 10, 64 << 10}, Rows: 100_000, Bytes: 512 << 20, Keys: 1000}
}

// ShortPayload are sizes that only show whether the harness works.
func ShortPayload() Payload {
	return Payload{Sizes: []int{100, 10_000}, Rows: 500, Bytes: 1 << 20, Keys: 10}
}

// UsesRedis implements RedisUser.
func (Payload) UsesRedis() {}

// Check implements Scenario.
func (p Payload) Check(int) error {
	if len(p.Sizes) == 0 || slices.Min(p.Sizes) < 1 || p.Rows < 1 || p.Bytes < int64(slices.Max(p.Sizes)) || p.Keys < 1 {
		return fmt.Errorf("payloads of %v bytes, %d rows with %d bytes at most, %d keys: use at least 1 of each, and bytes for a row", p.Sizes, p.Rows, p.Bytes, p.Keys)
	}
	return nil
}

func (p Payload) rows(size int) int64 { return min(p.Rows, p.Bytes/int64(size)) }

// Run implements Scenario.
func (p Payload) Run(ctx context.Context, o *Options) error {
	return o.withDatabase(ctx, "payload", func(database *fixture.Database) error {
		return o.withStreams(ctx, func(streams *fixture.Streams) error {
			for run := range o.Runs {
				loads := make([]*load, len(p.Sizes))
				for _, i := range o.turns(run).Perm(len(loads)) {
					loads[i] = &load{Payload: p, size: p.Sizes[i], streams: streams, database: database}
					if err := loads[i].measure(ctx, o, fmt.Sprintf("outbox_%d_%d", run, i)); err != nil {
						return fmt.Errorf("%d bytes: %w", p.Sizes[i], err)
					}
				}
				for _, l := range loads {
					l.report(o)
				}
				o.logf("payload: run %d of %d: done", run+1, o.Runs)
			}
			return nil
		})
	})
}

// load is one size in one run.
type load struct {
	Payload

	size          int
	database      *fixture.Database
	streams       *fixture.Streams
	cost          cost
	peak          fixture.Peak
	before, after fixture.Size
}

func (l *load) measure(ctx context.Context, o *Options, name string) error {
	const connections = 4
	table, err := l.database.Table(ctx, name, connections)
	if err != nil {
		return err
	}
	rows, prefix := l.rows(l.size), streamPrefix(l.streams, name, []string{drainBroker})
	events := fixture.Events{Count: rows, Brokers: []string{drainBroker}, Stream: prefix, Keys: l.Keys, Payload: l.size, Seed: o.Seed}
	if err := l.database.Checkpoint(ctx, o.Log); err != nil {
		return err
	}
	if err := table.FillEvents(ctx, o.Log, events); err != nil {
		return err
	}
	if err := table.Vacuum(ctx); err != nil {
		return err
	}
	if l.before, err = table.Size(ctx); err != nil {
		return err
	}
	targets, closeAll, err := redisTargets(o.Redis, events.Brokers, outbox.Policy{}, redisstreams.Settings{})
	if err != nil {
		return err
	}
	gauge := fixture.Watch()
	l.cost, err = spend(ctx, l.database, func() error { return deliverAll(ctx, table.Store, rows, targets, nil) })
	l.peak = gauge.Stop()
	if err = errors.Join(err, closeAll(ctx)); err != nil {
		return err
	}
	o.logf("payload: %d bytes: %.0f msgs/s", l.size, float64(rows)/l.cost.took.Seconds())
	if l.after, err = table.Size(ctx); err != nil {
		return err
	}
	if l.after.Toast > l.before.Toast {
		return fmt.Errorf("scenario: claims and marks have copied payloads: what is out of line has grown from %d to %d bytes", l.before.Toast, l.after.Toast)
	}
	if err := allPublished(ctx, table, rows); err != nil {
		return err
	}
	if err := inStream(ctx, l.streams, prefix+drainBroker, table, drainBroker); err != nil {
		return err
	}
	if err := l.intact(ctx, prefix+drainBroker, events.Noise()); err != nil {
		return err
	}
	if err := l.streams.Delete(ctx, prefix+drainBroker); err != nil {
		return err
	}
	return table.Drop(ctx)
}

// intact looks whether the first and the last message have the payload that was written.
func (l *load) intact(ctx context.Context, stream string, want []byte) error {
	first, err := l.streams.Client.XRangeN(ctx, stream, "-", "+", 1).Result()
	if err != nil {
		return err
	}
	last, err := l.streams.Client.XRevRangeN(ctx, stream, "+", "-", 1).Result()
	if err != nil {
		return err
	}
	for _, entry := range [][]redis.XMessage{first, last} {
		if text, _ := entry[0].Values["data"].(string); !bytes.Equal([]byte(text), want) {
			return fmt.Errorf("scenario: an entry has another payload, of %d bytes, than was written", len(text))
		}
	}
	return nil
}

func (l *load) report(o *Options) {
	s, of, rows := o.Report.Scenario("payload"), fmt.Sprintf("%d B", l.size), l.rows(l.size)
	if l.size >= 1<<10 && l.size%(1<<10) == 0 {
		of = fmt.Sprintf("%d KiB", l.size>>10)
	}
	rate := float64(rows) / l.cost.took.Seconds()
	s.Add(of, "rate", "msgs/s", rate)
	s.Add(of, "payload", "MB/s", rate*float64(l.size)/1e6)
	l.cost.report(s, of, "msg", rows)
	s.Add(of, "table, before", "B/row", float64(l.before.Rows)/float64(rows))
	s.Add(of, "table, after", "B/row", float64(l.after.Rows)/float64(rows))
	s.Add(of, "out of line", "B/row", float64(l.after.Toast)/float64(rows))
	reportPeak(s, of, l.peak)
}
