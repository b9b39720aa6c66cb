package scenario

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
)

// Latency asks how long a message takes from the commit of its transaction until a consumer has it
// that waits at the stream: with the relay in the process that writes, in a process of its own,
// beside loops written by hand, and beside other projects. The cases take turns, each in a database
// of its own.
type Latency struct {
	// For is how long transactions are written in each turn, and Turns how many turns each case has
	// in a run.
	For   time.Duration
	Turns int
	// Rate is how many transactions are written in a second, by one connection. Each has one
	// business row and one event.
	Rate int
	// Warm is how many come first in each turn and are not counted.
	Warm int
	// Payload of each message, in bytes, a few more with what is around it.
	Payload int
	// Only measures the cases in whose names one of these texts occurs. Default: all.
	Only []string
}

// DefaultLatency are the sizes of a full run.
func DefaultLatency() Latency {
	return Latency{For: 4 * time.Second, Turns: 2, Rate: 50, Warm: 25, Payload: 500}
}

// ShortLatency are sizes that only show whether the harness works.
func ShortLatency() Latency {
	return Latency{For: 200 * time.Millisecond, Turns: 1, Rate: 50, Warm: 2, Payload: 100}
}

// UsesRedis implements RedisUser.
func (Latency) UsesRedis() {}

// count is how many transactions are counted in a turn.
func (l Latency) count() int { return int(l.For.Seconds() * float64(l.Rate)) }

// Check implements Scenario.
func (l Latency) Check(int) error {
	if l.Turns < 1 || l.Rate < 1 || l.count() < 1 || l.Warm < 0 || l.Payload < 0 {
		return fmt.Errorf("%s at %d transactions per second, %d of them to warm up, %d turns, payload %d: use a time in which there is at least one, a turn, "+
			"and no negative number", l.For, l.Rate, l.Warm, l.Turns, l.Payload)
	}
	if len(l.cases()) == 0 {
		return fmt.Errorf("no case is called like %s", strings.Join(l.Only, " or "))
	}
	return nil
}

// path is one way from a commit to the broker.
type path struct {
	name string
	// start makes tables and begins to deliver. It returns how to write the n-th transaction, and
	// how to end; end is nil where start fails.
	start   func(ctx context.Context, t *turn) (write writer, end func() error, err error)
	results [][]time.Duration // by run
}

// writer commits the transaction of one order. Its context has the commit's stamp.
type writer func(ctx context.Context, n int64) error

const (
	fanoutSame     = "fanout, same process"
	handSame       = "by hand, wake and claim, same process"
	fanoutNotified = "fanout, another process, notified"
	handNotified   = "by hand, LISTEN and claim, another process"
	fanoutPolling  = "fanout, another process, polling"
)

func (l Latency) cases() []*path {
	all := []*path{
		{name: fanoutSame, start: startFanout},
		{name: handSame, start: startHand},
		{name: fanoutNotified, start: startRelay(true)},
		{name: handNotified, start: startListener},
		{name: fanoutPolling, start: startRelay(false)},
		{name: "river, tuned", start: startRiver(riverPeer{tuned: true})},
		{name: "river, default", start: startRiver(riverPeer{})},
		{name: "watermill, tuned", start: startWatermill(watermillPeer{tuned: true, topics: 1})},
		{name: "watermill, default", start: startWatermill(watermillPeer{topics: 1})},
	}
	return slices.DeleteFunc(all, func(p *path) bool {
		return p.name == fanoutNotified && !canNotify() ||
			len(l.Only) > 0 && !slices.ContainsFunc(l.Only, func(part string) bool { return strings.Contains(p.name, part) })
	})
}

// Run implements Scenario.
func (l Latency) Run(ctx context.Context, o *Options) (err error) {
	streams, err := fixture.OpenStreams(ctx, o.Redis)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, streams.Close()) }() //nolint:contextcheck // the context may be what has ended
	if o.Report.Servers["Redis"], err = streams.Version(ctx); err != nil {
		return err
	}
	cases, random := l.cases(), rand.New(rand.NewPCG(o.Seed, 1))
	for run := range o.Runs {
		for n := range l.Turns {
			for _, i := range random.Perm(len(cases)) {
				p := cases[i]
				times, err := l.turn(ctx, o, streams, p, fmt.Sprintf("latency_%d_%d_%d", run, n, i), random)
				if err != nil {
					return fmt.Errorf("%s: %w", p.name, err)
				}
				if len(p.results) == run {
					p.results = append(p.results, nil)
				}
				p.results[run] = append(p.results[run], times...)
			}
		}
		o.logf("latency: run %d of %d: done", run+1, o.Runs)
	}
	l.report(o, cases)
	return nil
}

// turn is what one case runs on in one of its turns.
type turn struct {
	Latency

	redis    string
	database *fixture.Database
	stream   string
	text     string // that fills the payload
}

// turn measures one case for a while.
func (l Latency) turn(ctx context.Context, o *Options, streams *fixture.Streams, p *path, name string, random *rand.Rand) (times []time.Duration, err error) {
	err = o.withDatabase(ctx, "latency", func(database *fixture.Database) (err error) {
		t := &turn{Latency: l, redis: o.Redis, database: database, stream: streams.New(name), text: strings.Repeat("x", l.Payload)}
		if _, err := database.Admin.Exec(ctx, readSQL("latency_order")); err != nil {
			return err
		}
		write, end, err := p.start(ctx, t)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, end()) }()
		times, err = t.measure(ctx, write, random)
		return errors.Join(err, streams.Delete(ctx, t.stream))
	})
	return times, err
}

// latencyPatience is how long the last messages may take.
const latencyPatience = 20 * time.Second

var errNotAllThere = fmt.Errorf("scenario: a message is not in the stream %s after its commit", latencyPatience)

// measure writes and reads at the same time.
func (t *turn) measure(ctx context.Context, write writer, random *rand.Rand) ([]time.Duration, error) {
	total := t.Warm + t.count()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		group   errgroup.Group
		commits []time.Time
		arrived []time.Time
	)
	group.Go(func() (err error) {
		if arrived, err = t.read(ctx, total); err != nil {
			cancel(err)
		}
		return err
	})
	var late *time.Timer
	group.Go(func() (err error) {
		if commits, err = t.write(ctx, total, write, random); err != nil {
			cancel(err)
		}
		late = time.AfterFunc(latencyPatience, func() { cancel(errNotAllThere) })
		return err
	})
	err := group.Wait()
	late.Stop()
	if err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	times := make([]time.Duration, 0, t.count())
	for n := t.Warm; n < total; n++ {
		times = append(times, arrived[n].Sub(commits[n]))
	}
	return times, nil
}
