package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
)

// Backlog asks how fast a backlog gets from PostgreSQL to a broker, Redis Streams unless another one is
// named, beside loops written by hand: some that are as good as can be and keep no order, and one that goes row by row. All take
// their turn in each run. The limit is the fastest of those that work on the outbox's own table;
// others show what a table with less in it would bring.
type Backlog struct {
	// Rows to drain in each run; RowByRow of them where it goes row by row.
	Rows, RowByRow int64
	// Peers is how many of them other projects drain that are tuned, PeersAsIs how many they drain
	// as they are by default.
	Peers, PeersAsIs int64
	// Parts into which they are cut: between two the other cases have their turn, so that what else
	// the machine does hits all alike.
	Parts int64
	// Payload of each row, in bytes.
	Payload int
	// Batch is the limit of a claim.
	Batch int
	// Keys are the numbers of ordering keys to measure with. HotKeys is how many there are beside
	// one key that has 30 % of the rows.
	Keys    []int64
	HotKeys int64
	// Workers are the numbers of Fanout's workers to measure with. Default: what it has by itself.
	Workers []int
	// NotKept adds a case that removes rows as they are delivered ("keep: false"), for each number of keys.
	NotKept bool
	// Partitioned adds a case that moves rows to a history as they are delivered ("partition: day"), for
	// each number of keys.
	Partitioned bool
	// Broker is redis (the default), rabbitmq, nats or kafka. For the others than Redis there are fewer
	// cases.
	Broker string
	// Only measures the cases in whose names one of these texts occurs. Default: all.
	Only []string
}

// DefaultBacklog are the sizes of a full run.
func DefaultBacklog() Backlog {
	return Backlog{Rows: 200_000, RowByRow: 2000, Peers: 80_000, PeersAsIs: 8000, Parts: 4, Payload: 500, Batch: 500, Keys: []int64{1, 1000, 100_000}, HotKeys: 100_000}
}

// ShortBacklog are sizes that only show whether the harness works.
func ShortBacklog() Backlog {
	return Backlog{Rows: 1000, RowByRow: 20, Peers: 600, PeersAsIs: 200, Parts: 2, Payload: 100, Batch: 50, Keys: []int64{1, 100}, HotKeys: 100}
}

const (
	drainBroker = "default"
	// hotShare is how many rows of a hundred the hot key has.
	hotShare = 30
)

// UsesRedis implements RedisUser.
func (Backlog) UsesRedis() {}

// Check implements Scenario.
func (b Backlog) Check(int) error {
	if b.Parts < 1 || min(b.Rows, b.RowByRow, b.Peers, b.PeersAsIs) < b.Parts || b.Batch < 1 || b.Payload < 0 ||
		len(b.Keys) == 0 || slices.Min(b.Keys) < 1 || b.HotKeys < 1 || len(b.Workers) > 0 && slices.Min(b.Workers) < 1 {
		return fmt.Errorf("%d rows, %d row by row, %d and %d of others, %d parts, batch %d, keys %v and %d, workers %v: "+
			"use at least 1 of each, a row for each part, and a payload of at least 0 bytes",
			b.Rows, b.RowByRow, b.Peers, b.PeersAsIs, b.Parts, b.Batch, b.Keys, b.HotKeys, b.Workers)
	}
	if !slices.Contains([]string{"", toRedis, toRabbitMQ, toNATS, toKafka}, b.Broker) {
		return fmt.Errorf("broker %q: use %s, %s, %s or %s", b.Broker, toRedis, toRabbitMQ, toNATS, toKafka)
	}
	if len(b.sides()) == 0 {
		return fmt.Errorf("no case is called like %s", strings.Join(b.Only, " or "))
	}
	return nil
}

// kind says what a case is compared with.
type kind int

const (
	limit    kind = iota // one of those of which the fastest is the limit
	leaner               // like those, on a table with fewer columns and indexes
	oneKey               // ordered, and one worker at a time can work
	manyKeys             // ordered
	unordered
	rowByRow
	riverTuned     // other projects
	watermillTuned //
	asDelivered    // shown, and compared with no target
)

// contest is one case: how rows are made, and who drains them.
type contest struct {
	name    string
	kind    kind
	rows    int64 // of each part
	keys    int64
	hot     int
	ordered bool
	minimal bool // the rows stand in the minimal table
	notKept bool // delivered rows are removed
	byDay   bool // delivered rows are moved
	// connections of the store at most; postgresAway and redisAway are how far away the servers
	// are, by the time of a round trip.
	connections             int32
	postgresAway, redisAway time.Duration
	drain                   func(ctx context.Context, s *setup) error
	peer                    peer       // nil for what drains the outbox table
	results                 []measured // by run
}

// measured is what one run has found about a case, in all its parts.
type measured struct {
	rows      int64
	took, cpu time.Duration
	database  time.Duration // processor time of its processes, in steps of 10 ms
	observed  bool          // whether that is known
	wal       int64
	trips     int64
}

// rate in rows per second.
func (m *measured) rate() float64 { return float64(m.rows) / m.took.Seconds() }

func (m *measured) add(other measured) {
	m.rows += other.rows
	m.took += other.took
	m.cpu += other.cpu
	m.database += other.database
	m.observed = other.observed
	m.wal += other.wal
	m.trips += other.trips
}

// someKeys is how many keys those have that keep no order.
const someKeys = 1000

func (b Backlog) sides() []*contest {
	var all []*contest
	for _, minimal := range []bool{false, true} {
		for workers := 1; workers <= 2; workers++ {
			name, role := fmt.Sprintf("by hand, outbox table, %d worker", workers), limit
			if minimal {
				name, role = fmt.Sprintf("by hand, minimal table, %d worker", workers), leaner
			}
			if workers > 1 {
				name += "s"
			}
			all = append(all, &contest{name: name, kind: role, rows: b.Rows / b.Parts, keys: someKeys, minimal: minimal, drain: byHand(workers)})
		}
	}
	all = append(all, b.fanouts()...)
	all = append(all, &contest{name: "row by row", kind: rowByRow, rows: b.RowByRow / b.Parts, keys: someKeys, drain: oneByOne})
	all = append(all, b.peers()...)
	return slices.DeleteFunc(all, func(c *contest) bool {
		if b.elsewhere() && (c.minimal || c.kind == rowByRow || c.peer != nil) {
			return true
		}
		return len(b.Only) > 0 && !slices.ContainsFunc(b.Only, func(part string) bool { return strings.Contains(c.name, part) })
	})
}

// elsewhere reports whether the broker is another one than Redis.
func (b Backlog) elsewhere() bool { return b.Broker != "" && b.Broker != toRedis }

// Run implements Scenario.
func (b Backlog) Run(ctx context.Context, o *Options) error {
	return o.withDatabase(ctx, "drain", func(database *fixture.Database) (err error) {
		streams, err := fixture.OpenStreams(ctx, o.Redis)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, streams.Close()) }() //nolint:contextcheck // the context may be what has ended
		if o.Report.Servers["Redis"], err = streams.Version(ctx); err != nil {
			return err
		}
		other, err := o.openElsewhere(ctx, b.Broker)
		if err != nil {
			return err
		}
		if other != nil {
			defer func() { err = errors.Join(err, other.close()) }()
		}
		return b.contests(ctx, o, &setup{Backlog: b, options: o, database: database, streams: streams, redis: o.Redis, elsewhere: other})
	})
}

// contests lets all cases take their turn on what they have in common, and reports.
func (b Backlog) contests(ctx context.Context, o *Options, common *setup) error {
	sides, random := b.sides(), rand.New(rand.NewPCG(o.Seed, 0))
	for run := range o.Runs {
		for part := range b.Parts {
			for _, i := range random.Perm(len(sides)) {
				s := *common
				s.contest = sides[i]
				measure := s.measure
				if s.peer != nil {
					measure = s.measurePeer
				}
				m, err := measure(ctx, fmt.Sprintf("outbox_%d_%d_%d", run, part, i))
				if err != nil {
					return fmt.Errorf("%s: %w", sides[i].name, err)
				}
				sides[i].note(run, m)
			}
		}
		o.logf("drain: run %d of %d: done", run+1, o.Runs)
	}
	b.report(o, sides)
	b.reportPeers(o, sides)
	return nil
}

// note adds what a part of a run has measured.
func (c *contest) note(run int, m measured) {
	if len(c.results) == run {
		c.results = append(c.results, measured{})
	}
	c.results[run].add(m)
}

// setup is what one case runs on in one run.
type setup struct {
	Backlog
	*contest

	options  *Options
	database *fixture.Database
	streams  *fixture.Streams
	table    *fixture.Table
	stream   string
	// elsewhere is where messages go, nil = to Redis.
	elsewhere elsewhere
	redis     string        // how the broker reaches it
	trips     int64         // to the database and back
	pool      *pgxpool.Pool // of a peer, to its schema
	stop      func() error  // ends what a peer has begun; may be nil
	// written are the rows as they were before the drain, where one of the cases removes them; it is read in all
	// cases then, as whoever reads a row first makes that cheaper for all that come after.
	written map[uuid.UUID]fixture.Row
}

// measure fills a table, drains it, looks whether all has arrived, and removes the table and the
// stream.
func (s *setup) measure(ctx context.Context, name string) (m measured, err error) {
	if s.byDay {
		s.table, err = s.database.Partitioned(ctx, name, s.connections)
	} else {
		s.table, err = s.database.TableFarAway(ctx, name, cmp.Or(s.connections, 4), s.postgresAway)
	}
	if err != nil {
		return m, err
	}
	s.stream = s.streams.New(name)
	if s.elsewhere != nil {
		s.stream = name
		if err := s.elsewhere.prepare(ctx, s.stream); err != nil {
			return m, err
		}
	}
	if err := s.fill(ctx); err != nil {
		return m, err
	}
	if s.NotKept {
		if s.written, err = s.table.Keys(ctx); err != nil {
			return m, err
		}
	}
	if m, err = s.timed(ctx); err != nil {
		return m, err
	}
	s.options.logf("%s: %.0f msgs/s", s.name, m.rate())
	if err := s.check(ctx); err != nil {
		return m, err
	}
	remove := s.streams.Delete
	if s.elsewhere != nil {
		remove = s.elsewhere.remove
	}
	if err := remove(ctx, s.stream); err != nil {
		return m, err
	}
	if s.minimal {
		if err := s.table.Exec(ctx, "DROP TABLE {{table}}_minimal"); err != nil {
			return m, err
		}
	}
	return m, s.table.Drop(ctx)
}

// timed drains.
func (s *setup) timed(ctx context.Context) (m measured, err error) {
	runtime.GC()
	walBefore, err := s.database.WAL(ctx)
	if err != nil {
		return m, err
	}
	databaseBefore, _, err := s.database.ServerCPU(ctx)
	if err != nil {
		return m, err
	}
	cpuBefore, _ := fixture.CPU()
	began := time.Now()
	label := strings.ReplaceAll(s.name, ",", "") // which pprof takes for "or"
	pprof.Do(ctx, pprof.Labels("drain", label), func(ctx context.Context) { err = s.drain(ctx, s) })
	if err != nil {
		return m, err
	}
	took := time.Since(began)
	cpuAfter, _ := fixture.CPU()
	databaseAfter, observed, err := s.database.ServerCPU(ctx)
	if err != nil {
		return m, err
	}
	walAfter, err := s.database.WAL(ctx)
	return measured{
		rows: s.rows, took: took, cpu: cpuAfter - cpuBefore, database: databaseAfter - databaseBefore, observed: observed,
		wal: walAfter - walBefore, trips: s.trips,
	}, err
}

// fill writes the backlog, shortly after a checkpoint: the first change of a page after one logs
// the whole page, and one that falls into some cases and not into others would decide who is
// faster.
func (s *setup) fill(ctx context.Context) error {
	if err := s.database.Checkpoint(ctx, s.options.Log); err != nil {
		return err
	}
	fill := fixture.Fill{
		Rows: s.rows, Brokers: []string{drainBroker}, Keys: []int64{s.keys}, Prefix: "order-", Payload: s.Payload, Seed: s.options.Seed,
		Hot: s.hot, Stream: s.stream,
	}
	if err := s.table.Fill(ctx, s.options.Log, fill); err != nil {
		return err
	}
	if !s.minimal {
		return s.table.Vacuum(ctx)
	}
	for _, text := range []string{readSQL("minimal_table"), readSQL("minimal_fill"), "VACUUM (ANALYZE) {{table}}_minimal"} {
		if err := s.table.Exec(ctx, text); err != nil {
			return err
		}
	}
	return nil
}
