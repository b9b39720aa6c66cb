package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/outbox"
)

// drainInMemory drains events and looks whether all of them arrived, at each broker in order.
func (o *Options) drainInMemory(ctx context.Context, dialect outbox.Dialect, connections int, fill fixture.Fill) (cost fixture.Cost, err error) {
	on := setting{dialect: dialect, connections: connections, brokers: fill.Brokers, fills: []fixture.Fill{fill}}
	err = o.withRig(ctx, on, func(ctx context.Context, r *rig) error {
		cost, err = r.Spend(ctx, func() error {
			return r.deliver(ctx, func(ctx context.Context) error { return r.drained(ctx, fill.Events*len(r.recorders)) })
		})
		for _, target := range r.recorders {
			// Rows of one key and different priorities may overtake each other.
			err = errors.Join(err, check(target.noted(), 1, fill.Events, fill.Low == 0))
		}
		return err
	})
	return cost, err
}

// priorities asks what a mixture of priorities costs a drain, beside a backlog of one priority.
type priorities struct {
	rows, payload int
	keys, low     []int
}

func newPriorities(s *Sizes) Scenario {
	p := &priorities{}
	s.number(&p.rows, "rows", 100_000, 1000, "messages to drain in each case")
	s.number(&p.payload, "payload", 500, 100, "bytes of payload")
	s.numbers(&p.keys, "keys", []int{24, 100, 1000}, []int{24}, "numbers of ordering keys")
	s.numbers(&p.low, "low", []int{1, 20, 50, 99}, []int{20}, "how many of 100 messages have a low priority")
	return p
}

const prioritiesLimit = 0.8 // of the rate with one priority

// Run implements Scenario.
func (p *priorities) Run(ctx context.Context, o *Options) error {
	return o.eachRun("priorities", func(run int) error {
		for _, dialect := range []outbox.Dialect{outbox.Postgres, outbox.MySQL} {
			for _, keys := range p.keys {
				if err := p.measure(ctx, o, run, dialect, keys); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (p *priorities) measure(ctx context.Context, o *Options, run int, dialect outbox.Dialect, keys int) error {
	low, took := append([]int{0}, p.low...), map[int]time.Duration{}
	label := func(share int) string { return fmt.Sprintf("%s, %d keys, %d %% low", dialect, keys, share) }
	for _, i := range o.random(run).Perm(len(low)) {
		cost, err := o.drainInMemory(ctx, dialect, 0, fixture.Fill{Events: p.rows, Keys: keys, Low: low[i], Payload: p.payload})
		if err != nil {
			return fmt.Errorf("%s: %w", label(low[i]), err)
		}
		took[low[i]] = cost.Took
	}
	s := o.Report.Scenario("priorities")
	for _, share := range low {
		s.Add(label(share), "rate", "msgs/s", float64(p.rows)/took[share].Seconds())
		if share > 0 {
			s.Add(label(share), "of the rate without", "x", took[0].Seconds()/took[share].Seconds()).LimitAtLeast(prioritiesLimit, "")
		}
	}
	return nil
}

// manyBrokers asks what a delivery costs with more and more brokers, each with a processor of its
// own.
type manyBrokers struct {
	brokers                   []int
	deliveries, payload, keys int
}

func newBrokers(s *Sizes) Scenario {
	b := &manyBrokers{}
	s.numbers(&b.brokers, "brokers", []int{1, 8, 32}, []int{1, 3}, "numbers of brokers; the others are compared with the first")
	s.number(&b.deliveries, "deliveries", 400_000, 900, "deliveries, to all brokers together")
	s.number(&b.payload, "payload", 500, 100, "bytes of payload")
	s.number(&b.keys, "keys", 1000, 10, "number of ordering keys")
	return b
}

// Run implements Scenario.
func (b *manyBrokers) Run(ctx context.Context, o *Options) error {
	return o.eachRun("brokers", func(run int) error {
		costs := make([]fixture.Cost, len(b.brokers))
		for _, i := range o.random(run).Perm(len(costs)) {
			fill := fixture.Fill{Events: max(1, b.deliveries/b.brokers[i]), Keys: b.keys, Payload: b.payload}
			for n := range b.brokers[i] {
				fill.Brokers = append(fill.Brokers, fmt.Sprintf("broker-%d", n))
			}
			var err error
			const workers, spare, most = 2, 3, 6 // connections, as a relay has by default
			if costs[i], err = o.drainInMemory(ctx, outbox.Postgres, min(workers*b.brokers[i]+spare, most), fill); err != nil {
				return fmt.Errorf("%s: %w", plural(b.brokers[i], "broker"), err)
			}
		}
		s := o.Report.Scenario("brokers")
		for i, n := range b.brokers {
			deliveries := func(i int) float64 { return float64(max(1, b.deliveries/b.brokers[i]) * b.brokers[i]) }
			rate := func(i int) float64 { return deliveries(i) / costs[i].Took.Seconds() }
			s.Add(plural(n, "broker"), "deliveries", "/s", rate(i))
			costs[i].Report(s, plural(n, "broker"), "delivery", int(deliveries(i)))
			if i > 0 && costs[0].Server > 0 {
				s.Add(plural(n, "broker"), "CPU of the database, times "+plural(b.brokers[0], "broker"), "x",
					costs[i].Server.Seconds()/deliveries(i)/(costs[0].Server.Seconds()/deliveries(0)))
			}
		}
		return nil
	})
}
