package scenario

import (
	"context"
	"errors"
	"time"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
	"github.com/gorm-fanout/fanout/outbox"
)

// transaction asks what a transaction costs that stays open, so that the server removes nothing that
// is dead: a backlog is drained, and then messages are written and delivered at a steady rate, once
// without such a transaction and once with it.
type transaction struct {
	name    string
	dialect outbox.Dialect
	// writes has the transaction write a message, and not only hold a snapshot.
	writes        bool
	backlog       int
	span          time.Duration
	rate          int
	payload, keys int
}

// newIdleTransaction is P8. Its transaction has a snapshot.
func newIdleTransaction(s *Sizes) Scenario {
	t := &transaction{name: "idle-transaction"}
	t.register(s, 1, 90*time.Second, 2000)
	return t
}

// newOpenWriter is the course on which the 99th percentile once was forty times as high.
func newOpenWriter(s *Sizes) Scenario {
	t := &transaction{name: "openwriter", writes: true}
	t.register(s, 200_000, 60*time.Second, 50)
	return t
}

func (t *transaction) register(s *Sizes, backlog int, span time.Duration, rate int) {
	s.dialect(&t.dialect)
	s.number(&t.backlog, "backlog", backlog, 500, "messages that are drained first")
	s.duration(&t.span, "for", span, 600*time.Millisecond, "how long messages are written then")
	s.number(&t.rate, "rate", rate, rate/10, "messages per second")
	s.number(&t.payload, "payload", 500, 100, "bytes of payload")
	s.number(&t.keys, "keys", 1000, 10, "number of ordering keys")
}

const (
	idleTransactionLimit = 5  // times the p50 of claims
	openWriterLimit      = 10 // ms, the p99 from a commit to the broker
)

// Run implements Scenario.
func (t *transaction) Run(ctx context.Context, o *Options) error {
	return o.eachRun(t.name, func(run int) error {
		sides := [2]course{}
		for _, i := range o.random(run).Perm(len(sides)) {
			err := o.withRig(ctx, setting{dialect: t.dialect}, func(ctx context.Context, r *rig) (err error) {
				if i == 1 {
					end, failed := r.HoldTransaction(ctx, t.writes)
					if failed != nil {
						return failed
					}
					defer func() { err = errors.Join(err, end()) }()
				}
				return t.measure(ctx, r, &sides[i])
			})
			if err != nil {
				return err
			}
		}
		t.report(o.Report.Scenario(t.name), &sides[0], &sides[1])
		return nil
	})
}

// course is one side in one run.
type course struct {
	drained      time.Duration
	cost         fixture.Cost
	events       int
	claims, last []time.Duration // times of claims, and of those in the last third
	latencies    []time.Duration
}

func (t *transaction) measure(ctx context.Context, r *rig, c *course) error {
	fill := fixture.Fill{Events: t.backlog, Keys: t.keys, Payload: t.payload}
	if err := errors.Join(r.fill(ctx, fill), r.Settle(ctx, r.options.Log)); err != nil {
		return err
	}
	return r.deliver(ctx, func(ctx context.Context) error {
		began := time.Now()
		if err := r.drained(ctx, t.backlog); err != nil {
			return err
		}
		c.drained = time.Since(began)
		var commits map[int64]time.Time
		var err error
		began = time.Now()
		c.cost, err = r.Spend(ctx, func() (err error) {
			commits, err = r.write(ctx, fill, t.rate, t.span)
			return errors.Join(err, r.drained(ctx, t.backlog+len(commits)))
		})
		c.claims, _ = r.between(began, time.Now())
		c.last, _ = r.between(began.Add(t.span*2/3), time.Now())
		c.latencies, c.events = r.latencies(commits), len(commits)
		return err
	})
}

func (t *transaction) report(s *report.Scenario, without, with *course) {
	for i, c := range []*course{without, with} {
		of := []string{"without", "with"}[i]
		s.Add(of, "drain", "msgs/s", float64(t.backlog)/c.drained.Seconds())
		s.AddTimes(of, "claim, ", c.claims)
		_, p99 := s.AddTimes(of, "commit to broker, ", c.latencies)
		if t.writes && i == 1 {
			p99.LimitAtMost(openWriterLimit, "")
		}
		c.cost.Report(s, of, "msg", c.events)
	}
	const of = "with, times without"
	claim := s.AddRatio(of, "claim", 0.5, with.claims, without.claims)
	last := s.AddRatio(of, "claim in the last third", 0.5, with.last, without.last)
	if !t.writes {
		claim.LimitAtMost(idleTransactionLimit, "P8")
		last.LimitAtMost(idleTransactionLimit, "P8")
	}
	s.AddRatio(of, "commit to broker", 0.5, with.latencies, without.latencies)
	s.AddRatio(of, "commit to broker", 0.99, with.latencies, without.latencies)
}
