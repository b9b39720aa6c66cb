package scenario

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// drain asks how fast a backlog gets from a database to a broker. From PostgreSQL it stands beside
// loops written by hand, which are as fast as possible and keep no order. All cases take turns in
// each run.
type drain struct {
	dialect outbox.Dialect
	// broker is where to, see openDestination. Default: redis, and a broker in memory for the other
	// databases than PostgreSQL.
	broker string
	// all messages of a run are cut into parts; the case that goes row by row drains fewer.
	all, rowByRow, parts int
	payload, batch       int
	// keyCounts are numbers of ordering keys; hotKeys is how many there are beside one with 30 % of
	// all messages.
	keyCounts []int
	hotKeys   int
	// workers are numbers of Fanout's workers.
	workers []int
	notKept bool
	// only names the cases to measure by a part of their names.
	only []string
}

func newDrain(s *Sizes) Scenario {
	d := &drain{}
	s.dialect(&d.dialect)
	s.Flags.StringVar(&d.broker, "broker", "", "redis, rabbitmq, nats, kafka or memory (default redis, for mysql and sqlite memory)")
	s.number(&d.all, "rows", 200_000, 1000, "messages to drain")
	s.number(&d.rowByRow, "row-by-row", 2000, 20, "messages to drain row by row")
	s.number(&d.parts, "parts", 4, 1, "cut the messages of a run into so many backlogs, between which the cases take turns")
	s.number(&d.payload, "payload", 500, 100, "bytes of payload")
	s.number(&d.batch, "batch", 500, 50, "rows of a claim")
	s.numbers(&d.keyCounts, "keys", []int{1, 1000, 100_000}, []int{1, 100}, "numbers of ordering keys")
	s.number(&d.hotKeys, "hot-keys", 100_000, 100, "number of ordering keys beside one that has 30 % of the messages")
	s.numbers(&d.workers, "workers", nil, nil, "numbers of Fanout's workers, instead of its default")
	s.Flags.BoolVar(&d.notKept, "not-kept", false, "also measure with rows that are removed as they are delivered (keep: false)")
	s.Flags.Func("only", "measure only the cases in whose names this `text` occurs; may be given more than once", func(text string) error {
		d.only = append(d.only, text)
		return nil
	})
	return d
}

// Limits of P1, P2 and P6.
const (
	orderedLimit    = 0.85 // of the fastest loop by hand
	unorderedLimit  = 0.9
	rowByRowLimit   = 30   // times
	logLimit        = 600  // bytes for a message
	logOfHandLimit  = 1.05 // times the loop by hand
	roundTripsLimit = 5    // for 1,000 messages
)

// kind says what a case is compared with.
type kind int

const (
	byHand    kind = iota // the fastest of these is the limit
	byHandMin             // like these, on a table with fewer columns and indexes
	oneKey                // ordered, and one worker at a time can work
	manyKeys              // ordered
	unordered
	oneByOne
	shown // compared with no target
)

// contest is one case: which rows, and who drains them.
type contest struct {
	name      string
	kind      kind
	rows      int
	keys, hot int
	// work drains, and returns how many round trips to the database it took, if it knows.
	work func(ctx context.Context, s *stage) (trips int, err error)
	// prepare makes tables beside the outbox.
	prepare func(ctx context.Context, s *stage) error
	results []measured // by run
}

// measured is what one run has found about a case, in all its parts.
type measured struct {
	rows, trips int
	cost        fixture.Cost
}

func (m *measured) rate() float64 { return float64(m.rows) / m.cost.Took.Seconds() }

// stage is what a case runs on in one part of a run.
type stage struct {
	*drain
	*contest
	*fixture.Table

	options     *Options
	destination destination
	stream      string
}

const (
	hotShare = 30
	someKeys = 1000 // of rows that are drained without order
)

func (d *drain) contests() []*contest {
	onPostgres, part := d.dialect == outbox.Postgres, max(1, d.all/d.parts)
	var all []*contest
	for workers := 1; workers <= 2 && onPostgres; workers++ {
		name := ", " + plural(workers, "worker")
		all = append(all, &contest{name: "by hand, outbox table" + name, kind: byHand, work: drainByHand("own", workers), keys: someKeys},
			&contest{name: "by hand, minimal table" + name, kind: byHandMin, work: drainByHand("minimal", workers), keys: someKeys, prepare: fillMinimal})
	}
	workers := d.workers
	if len(workers) == 0 {
		workers = []int{0}
	}
	for _, n := range workers {
		suffix := ""
		if n > 0 {
			suffix = ", " + plural(n, "worker")
		}
		add := func(name string, kind kind, keys, hot int, policy outbox.Policy) {
			policy.BatchSize, policy.Workers = d.batch, n
			all = append(all, &contest{name: "fanout, " + name + suffix, kind: kind, keys: keys, hot: hot, work: drainByFanout(policy)})
		}
		for _, keys := range d.keyCounts {
			kind := manyKeys
			if keys == 1 {
				kind = oneKey
			}
			add(plural(keys, "key"), kind, keys, 0, outbox.Policy{})
			if d.notKept {
				add(plural(keys, "key")+", not kept", shown, keys, 0, outbox.Policy{DeletePublished: true})
			}
		}
		add("hot key", manyKeys, d.hotKeys, hotShare, outbox.Policy{})
		add("unordered", unordered, someKeys, 0, outbox.Policy{Unordered: true})
	}
	for _, c := range all {
		c.rows = part
	}
	if onPostgres && d.broker == "redis" {
		all = append(all, &contest{name: "row by row", kind: oneByOne, work: drainRowByRow, keys: someKeys, rows: max(1, d.rowByRow/d.parts)})
	}
	return slices.DeleteFunc(all, func(c *contest) bool {
		return len(d.only) > 0 && !slices.ContainsFunc(d.only, func(part string) bool { return strings.Contains(c.name, part) })
	})
}

// Run implements Scenario.
func (d *drain) Run(ctx context.Context, o *Options) (err error) {
	if d.broker == "" {
		d.broker = map[bool]string{true: "redis", false: "memory"}[d.dialect == outbox.Postgres]
	}
	all := d.contests()
	destination, err := openDestination(ctx, o, d.broker)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, destination.close(context.WithoutCancel(ctx))) }()
	prefix := "fanout-bench-" + strings.ToLower(rand.Text()[:8])
	err = o.eachRun("drain", func(run int) error {
		random := o.random(run)
		for part := range d.parts {
			for _, i := range random.Perm(len(all)) {
				s := &stage{drain: d, contest: all[i], options: o, destination: destination, stream: fmt.Sprintf("%s-%d-%d-%d", prefix, run, part, i)}
				if err := s.measure(ctx, run); err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
			}
		}
		return nil
	})
	if err == nil {
		d.report(o.Report.Scenario("drain"), all)
	}
	return err
}

// measure fills a table, drains it, and looks whether all of it arrived.
func (s *stage) measure(ctx context.Context, run int) error {
	return s.options.withTable(ctx, s.dialect, outbox.Shards+2, func(t *fixture.Table) (err error) {
		s.Table = t
		if err := s.destination.prepare(ctx, s.stream); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.destination.remove(context.WithoutCancel(ctx), s.stream)) }()
		fill := fixture.Fill{
			Events: s.rows, Brokers: []string{broker}, Keys: s.keys, Hot: s.hot, Stream: s.stream, Payload: s.payload, Seed: s.options.Seed,
		}
		if err := t.Fill(ctx, s.options.Log, fill); err != nil {
			return err
		}
		if s.prepare != nil {
			if err := s.prepare(ctx, s); err != nil {
				return err
			}
		}
		if err := t.Settle(ctx, s.options.Log); err != nil {
			return err
		}
		m := measured{rows: s.rows}
		m.cost, err = t.Spend(ctx, func() (err error) {
			m.trips, err = s.work(ctx, s)
			return err
		})
		if err != nil {
			return err
		}
		s.options.logf("drain: %s: %.0f msgs/s", s.name, m.rate())
		if len(s.results) == run {
			s.results = append(s.results, measured{})
		}
		all := &s.results[run]
		all.rows, all.trips = all.rows+m.rows, all.trips+m.trips
		all.cost.Add(m.cost)
		return s.destination.check(ctx, s.stream, s.rows, s.kind == oneKey || s.kind == manyKeys || s.kind == shown)
	})
}

// drainByFanout drains with an engine.
func drainByFanout(policy outbox.Policy) func(context.Context, *stage) (int, error) {
	return func(ctx context.Context, s *stage) (trips int, err error) {
		target, err := s.destination.open(s.stream)
		if err != nil {
			return 0, err
		}
		m := &meter{Store: s.Store}
		err = deliver(ctx, m, map[string]relay.Target{broker: {Broker: target, Policy: policy}}, func(ctx context.Context, _ *relay.Engine) error {
			err := m.drained(ctx, s.rows)
			trips = int(m.trips.Load())
			return err
		})
		return trips, errors.Join(err, target.Close(context.WithoutCancel(ctx)))
	}
}

// report compares all cases with the fastest loops by hand and with the slower ones, run by run.
func (d *drain) report(s *report.Scenario, all []*contest) { //nolint:gocognit // a table row per contest
	hand, lean := fastest(all, byHand), fastest(all, byHandMin)
	for _, c := range all {
		ours := strings.HasPrefix(c.name, "fanout, ") && c.kind != shown
		for run := range c.results {
			m := &c.results[run]
			s.Add(c.name, "rate", "msgs/s", m.rate())
			if log := m.cost.Report(s, c.name, "msg", m.rows); log != nil && ours {
				log.LimitAtMost(logLimit, d.target("P6"))
			}
			if m.trips > 0 {
				trips := s.Add(c.name, "round trips", "/1000 msgs", 1000*float64(m.trips)/float64(m.rows))
				if ours {
					trips.LimitAtMost(roundTripsLimit, d.target("P6"))
				}
			}
			if hand != nil && c.kind == manyKeys && m.cost.Log > 0 {
				of := &hand.results[run]
				ratio := float64(m.cost.Log) / float64(m.rows) / (float64(of.cost.Log) / float64(of.rows))
				s.Add(c.name, "log, times "+hand.name, "x", ratio).LimitAtMost(logOfHandLimit, d.target("P6"))
			}
			for _, other := range []*contest{hand, lean, fastest(all, oneByOne)} {
				if other != nil && other != c {
					d.compare(s, c, other, m.rate()/other.results[run].rate())
				}
			}
		}
	}
}

// compare notes the rate of a case as a multiple of another one's.
func (d *drain) compare(s *report.Scenario, c, other *contest, ratio float64) {
	figure := s.Add(c.name, "times "+other.name, "x", ratio)
	toHand := other.kind == byHand || other.kind == byHandMin
	switch {
	case c.kind == unordered && toHand:
		figure.LimitAtLeast(unorderedLimit, d.target("P2"))
	case c.kind == manyKeys && toHand:
		figure.LimitAtLeast(orderedLimit, d.target("P1"))
	case c.kind == manyKeys:
		figure.LimitAtLeast(rowByRowLimit, d.target("P1"))
	}
}

// target is the number of a target, which is about the drain from PostgreSQL to Redis.
func (d *drain) target(id string) string {
	if d.dialect == outbox.Postgres && d.broker == "redis" {
		return id
	}
	return ""
}

// fastest is the case of a kind that was the fastest in all runs together; nil if there is none.
func fastest(all []*contest, of kind) *contest {
	took := func(c *contest) (seconds float64) {
		for i := range c.results {
			seconds += c.results[i].cost.Took.Seconds() / float64(c.results[i].rows)
		}
		return seconds
	}
	var best *contest
	for _, c := range all {
		if c.kind == of && (best == nil || took(c) < took(best)) {
			best = c
		}
	}
	return best
}
