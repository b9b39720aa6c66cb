package scenario

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
)

// SQLite asks how fast a backlog gets out of SQLite, into a broker that only confirms and into
// Redis Streams, beside a loop written by hand; and how long the application's own small
// transactions take meanwhile, since SQLite has one writer.
type SQLite struct {
	// Rows to drain in each run.
	Rows int64
	// Parts into which they are cut: between two the other cases have their turn.
	Parts int64
	// Payload of each row, in bytes.
	Payload int
	// Batch is the limit of a claim.
	Batch int
	// Keys is the number of ordering keys.
	Keys int64
	// Pause of the application between two transactions of its own.
	Pause time.Duration
	// Only measures the cases in whose names one of these texts occurs. Default: all.
	Only []string
}

// DefaultSQLite are the sizes of a full run.
func DefaultSQLite() SQLite {
	return SQLite{Rows: 60_000, Parts: 3, Payload: 500, Batch: 500, Keys: 1000, Pause: 5 * time.Millisecond}
}

// ShortSQLite are sizes that only show whether the harness works.
func ShortSQLite() SQLite {
	return SQLite{Rows: 600, Parts: 2, Payload: 100, Batch: 50, Keys: 20, Pause: time.Millisecond}
}

// UsesRedis implements RedisUser.
func (SQLite) UsesRedis() {}

// Check implements Scenario.
func (l SQLite) Check(int) error {
	if l.Parts < 1 || l.Rows < l.Parts || l.Batch < 1 || l.Keys < 2 || l.Payload < 1 || l.Pause <= 0 {
		return fmt.Errorf("%d rows, %d parts, batch %d, %d keys, payload %d, pause %s: use at least 1 of each, 2 keys, and a row for each part",
			l.Rows, l.Parts, l.Batch, l.Keys, l.Payload, l.Pause)
	}
	if len(l.cases()) == 0 {
		return fmt.Errorf("no case is called like %s", strings.Join(l.Only, " or "))
	}
	return nil
}

// liteCase is who drains what into what.
type liteCase struct {
	name    string
	hand    string // the case by hand that it is compared with
	ordered bool
	redis   bool
	writer  bool // the application writes meanwhile
	drain   func(ctx context.Context, s *liteSetup) error

	results []measured        // by run
	waits   [][]time.Duration // of the application, by run
}

// alone is the case in which no relay drains.
const alone = "writer alone"

func (l SQLite) cases() []*liteCase {
	var all []*liteCase
	for _, target := range []string{"memory", "Redis", "memory, with a writer"} {
		hand := "by hand to " + target
		redis, writer := target == "Redis", strings.Contains(target, "writer")
		all = append(all,
			&liteCase{name: hand, redis: redis, writer: writer, drain: drainByHand},
			&liteCase{name: "ordered to " + target, hand: hand, ordered: true, redis: redis, writer: writer, drain: drainLite(false)},
			&liteCase{name: "unordered to " + target, hand: hand, redis: redis, writer: writer, drain: drainLite(true)})
	}
	all = append(all, &liteCase{name: alone, writer: true})
	return slices.DeleteFunc(all, func(c *liteCase) bool {
		return len(l.Only) > 0 && !slices.ContainsFunc(l.Only, func(part string) bool { return strings.Contains(c.name, part) })
	})
}

// Run implements Scenario.
func (l SQLite) Run(ctx context.Context, o *Options) (err error) {
	streams, err := fixture.OpenStreams(ctx, o.Redis)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, streams.Close()) }() //nolint:contextcheck // the context may be what has ended
	if o.Report.Servers["Redis"], err = streams.Version(ctx); err != nil {
		return err
	}
	cases, random := l.cases(), rand.New(rand.NewPCG(o.Seed, 0))
	for run := range o.Runs {
		for part := range l.Parts {
			for _, i := range random.Perm(len(cases)) {
				s := &liteSetup{SQLite: l, liteCase: cases[i], options: o, streams: streams}
				if err := s.measure(ctx, run, fmt.Sprintf("lite_%d_%d_%d", run, part, i)); err != nil {
					return fmt.Errorf("%s: %w", cases[i].name, err)
				}
			}
		}
		o.logf("sqlite: run %d of %d: done", run+1, o.Runs)
	}
	l.report(o, cases)
	return nil
}

// liteSetup is what one case runs on in one part of a run.
type liteSetup struct {
	SQLite
	*liteCase

	options *Options
	streams *fixture.Streams
	lite    *fixture.Lite
	rows    int64
	stream  string

	mu      sync.Mutex
	arrived []string // message ids, where the broker is in memory
}

// measure makes a file, fills it, drains it, looks whether all has arrived, and removes it.
func (s *liteSetup) measure(ctx context.Context, run int, name string) (err error) {
	dir, err := os.MkdirTemp("", "fanout-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	const connections = 4
	if s.lite, err = fixture.OpenLite(ctx, dir, connections); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.lite.Close()) }()
	if s.options.Report.Servers["SQLite"], err = s.lite.Version(ctx); err != nil {
		return err
	}
	s.stream, s.rows = s.streams.New(name), s.Rows/s.Parts
	if err := s.lite.Fill(ctx, drainBroker, s.stream, s.rows, s.Keys, s.Payload, s.options.Seed); err != nil {
		return err
	}
	if err := s.timed(ctx, run); err != nil || s.drain == nil {
		return err
	}
	if err := s.check(ctx); err != nil {
		return err
	}
	return s.streams.Delete(ctx, s.stream)
}

// timed drains, and lets the application write meanwhile where the case asks for it.
func (s *liteSetup) timed(ctx context.Context, run int) error {
	if len(s.results) == run {
		s.results, s.waits = append(s.results, measured{}), append(s.waits, nil)
	}
	runtime.GC()
	stop := func() ([]time.Duration, error) { return nil, nil }
	if s.writer {
		var err error
		if stop, err = s.startWriter(ctx); err != nil {
			return err
		}
	}
	cpuBefore, _ := fixture.CPU()
	began := time.Now()
	var failed error
	label := strings.ReplaceAll(s.name, ",", "") // which pprof takes for "or"
	pprof.Do(ctx, pprof.Labels("drain", label), func(ctx context.Context) {
		if s.drain != nil {
			failed = s.drain(ctx, s)
		} else {
			failed = s.rest(ctx)
		}
	})
	took := time.Since(began)
	waits, err := stop()
	if err := errors.Join(failed, err); err != nil {
		return err
	}
	cpuAfter, _ := fixture.CPU()
	m := measured{rows: s.rows, took: took, cpu: cpuAfter - cpuBefore}
	s.results[run].add(m)
	s.waits[run] = append(s.waits[run], waits...)
	s.options.logf("sqlite: %s: %.0f msgs/s", s.name, m.rate())
	return nil
}
