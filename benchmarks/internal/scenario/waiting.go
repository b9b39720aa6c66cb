package scenario

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/outbox"
)

// waiting asks how long very many rows that wait hold up messages of other keys, which are written
// behind them one by one.
type waiting struct {
	dialect       outbox.Dialect
	rows, payload int
	rate          int
	span          time.Duration
}

func (w *waiting) register(s *Sizes) {
	s.dialect(&w.dialect)
	s.number(&w.rows, "rows", 1_000_000, 2000, "rows that wait")
	s.number(&w.payload, "payload", 100, 50, "bytes of payload")
	s.number(&w.rate, "rate", 10, 50, "messages of other keys per second")
	s.duration(&w.span, "for", 30*time.Second, 200*time.Millisecond, "how long messages of other keys are written")
}

func newWaiting(s *Sizes) Scenario {
	w := &waiting{}
	w.register(s)
	return w
}

// waitingLimit is how many times as long other messages may take as where nothing waits.
const waitingLimit = 2

// tomorrow is when scheduled rows are due.
const tomorrow = 24 * time.Hour

// nothingWaits is the case that the others are compared with.
const nothingWaits = "nothing waits"

type waitingCase struct {
	name  string
	fills []fixture.Fill
}

// cases are the rows that wait.
func (w *waiting) cases() []waitingCase {
	rows := fixture.Fill{Events: w.rows, Payload: w.payload, Prefix: "waits-"}
	keyed, keyless := rows, rows
	keyed.Keys, keyed.Due = w.rows, tomorrow
	keyless.Due = tomorrow
	return []waitingCase{
		{nothingWaits, nil},
		{"scheduled, each with a key", []fixture.Fill{keyed}},
		{"scheduled, without keys", []fixture.Fill{keyless}},
	}
}

// Run implements Scenario.
func (w *waiting) Run(ctx context.Context, o *Options) error {
	return o.eachRun("waiting", func(run int) error {
		cases, s := w.cases(), o.Report.Scenario("waiting")
		others := map[string][]time.Duration{}
		for _, i := range o.random(run).Perm(len(cases)) {
			err := o.withRig(ctx, setting{dialect: w.dialect, fills: cases[i].fills}, func(ctx context.Context, r *rig) (err error) {
				return r.deliver(ctx, func(ctx context.Context) error {
					others[cases[i].name], err = w.others(ctx, s, cases[i].name, r)
					return err
				})
			})
			if err != nil {
				return fmt.Errorf("%s: %w", cases[i].name, err)
			}
		}
		for _, c := range cases[1:] {
			s.AddRatio(c.name, "times that where nothing waits", 0.99, others[c.name], others[nothingWaits]).LimitAtMost(waitingLimit, "")
		}
		return nil
	})
}

// others writes messages of other keys, and reports how long they took from the commit to the
// broker.
func (w *waiting) others(ctx context.Context, s *report.Scenario, of string, r *rig) ([]time.Duration, error) {
	commits, err := r.write(ctx, fixture.Fill{Keys: 1_000_000, Prefix: "other-", Payload: w.payload}, w.rate, w.span)
	if err == nil {
		err = await(ctx, func() int { return len(r.latencies(commits)) }, len(commits))
	}
	times := r.latencies(commits)
	s.AddTimes(of, "", times)
	s.Add(of, "slowest", "ms", report.Milliseconds(report.Percentile(times, 1)))
	return times, err
}

// followers asks what a message costs that fails, with very many messages of its key behind it: how
// long messages of other keys take meanwhile, and how long it takes to deliver the followers once
// the message can go.
type followers struct{ waiting }

func newFollowers(s *Sizes) Scenario {
	f := &followers{}
	f.register(s)
	return f
}

// Run implements Scenario.
func (f *followers) Run(ctx context.Context, o *Options) error {
	return o.eachRun("followers", func(int) error {
		var goes atomic.Bool
		on := setting{
			dialect: f.dialect, policy: outbox.Policy{Retry: outbox.Retry{MaxAttempts: 2, BaseDelay: time.Hour, MaxDelay: time.Hour}},
			refuse: func(m *brokers.Message) bool { return !goes.Load() && strings.HasPrefix(m.OrderingKey, "waits-") },
			fills:  []fixture.Fill{{Events: f.rows + 1, Keys: 1, Prefix: "waits-", Payload: f.payload}},
		}
		return o.withRig(ctx, on, func(ctx context.Context, r *rig) error {
			return r.deliver(ctx, func(ctx context.Context) error {
				s := o.Report.Scenario("followers")
				if _, err := f.others(ctx, s, "other keys", r); err != nil {
					return err
				}
				goes.Store(true)
				return f.comeBack(ctx, s, r)
			})
		})
	})
}

// comeBack measures how the head and its followers are delivered.
func (f *followers) comeBack(ctx context.Context, s *report.Scenario, r *rig) error {
	before, began := r.count(), time.Now()
	for _, text := range []string{"UPDATE {{table}} SET locked_until = NULL WHERE status = 'failed'", "UPDATE {{table}}_key_blocks SET wake_at = " + r.Now()} {
		if err := r.Exec(ctx, text); err != nil {
			return err
		}
	}
	r.engine.Wake("bench")
	if err := await(ctx, r.count, before+2); err != nil { // the head and the first follower
		return err
	}
	s.Add("coming back", "until the first follower", "s", time.Since(began).Seconds())
	if err := await(ctx, r.count, before+f.rows+1); err != nil {
		return err
	}
	took := time.Since(began)
	s.Add("coming back", "until the last", "s", took.Seconds())
	s.Add("coming back", "rate", "rows/s", float64(f.rows)/took.Seconds())
	times, _ := r.between(began, time.Now())
	s.AddTimes("coming back", "claim, ", times)
	return check(r.recorders[0].noted(), 1, r.count(), true)
}
