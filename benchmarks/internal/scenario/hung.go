package scenario

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// hung asks what a broker that never answers costs its two neighbours, beside the same with nothing
// to deliver to that broker. Both go on at the same time, in two databases of one server.
type hung struct {
	span          time.Duration
	rate, backlog int
	payload, keys int
}

func newHung(s *Sizes) Scenario {
	h := &hung{}
	s.duration(&h.span, "for", 30*time.Second, 600*time.Millisecond, "how long messages are written")
	s.number(&h.rate, "rate", 500, 200, "messages per second, to each broker")
	s.number(&h.backlog, "backlog", 100_000, 2000, "messages of each broker to drain")
	s.number(&h.payload, "payload", 500, 100, "bytes of payload")
	s.number(&h.keys, "keys", 1000, 10, "number of ordering keys")
	return h
}

const (
	hungBroker = "hung"
	hungLimit  = 1.1 // times the same without it
	// hungTimeout is the publish timeout, so short that the broker is tried often.
	hungTimeout = 2 * time.Second
)

// never is a broker that does not answer.
type never struct{ *recorder }

// Publish implements brokers.Broker.
func (never) Publish(ctx context.Context, messages []brokers.Message) []brokers.Result {
	<-ctx.Done()
	results := make([]brokers.Result, len(messages))
	for i := range results {
		results[i].Err = brokers.Unreachable(brokers.ScopeBroker, ctx.Err())
	}
	return results
}

// party is one of the two databases in one run.
type party struct {
	brokers   []string // that get messages
	latencies []time.Duration
	drained   time.Duration
}

// Run implements Scenario.
func (h *hung) Run(ctx context.Context, o *Options) error {
	return o.eachRun("hung", func(int) error {
		without, with := &party{brokers: []string{"one", "two"}}, &party{brokers: []string{"one", "two", hungBroker}}
		group, running := errgroup.WithContext(ctx)
		for _, p := range []*party{without, with} {
			group.Go(func() error { return h.measure(running, o, p) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
		s := o.Report.Scenario("hung")
		for i, p := range []*party{without, with} {
			s.AddTimes([]string{"without", "with"}[i], "commit to broker, ", p.latencies)
			s.Add([]string{"without", "with"}[i], "drain", "s", p.drained.Seconds())
		}
		s.AddRatio("with, times without", "commit to broker", 0.5, with.latencies, without.latencies).LimitAtMost(hungLimit, "P9")
		s.AddRatio("with, times without", "commit to broker", 0.99, with.latencies, without.latencies)
		s.Add("with, times without", "time of the drain", "x", with.drained.Seconds()/without.drained.Seconds()).LimitAtMost(hungLimit, "P9")
		return nil
	})
}

func (h *hung) measure(ctx context.Context, o *Options, p *party) error {
	on := setting{dialect: outbox.Postgres, connections: 8, brokers: []string{"one", "two"}, policy: outbox.Policy{PublishTimeout: hungTimeout}}
	return o.withRig(ctx, on, func(ctx context.Context, r *rig) error {
		r.targets[hungBroker] = relay.Target{Broker: never{&recorder{}}, Policy: on.policy}
		fill := fixture.Fill{Events: h.backlog, Brokers: p.brokers, Keys: h.keys, Payload: h.payload}
		err := r.deliver(ctx, func(ctx context.Context) error {
			commits, err := r.write(ctx, fill, h.rate, h.span)
			if err == nil {
				err = await(ctx, r.count, 2*len(commits))
			}
			p.latencies = r.latencies(commits)
			return err
		})
		if err = errors.Join(err, r.fill(ctx, fill), r.Settle(ctx, o.Log)); err != nil {
			return err
		}
		before, began := r.count(), time.Now()
		err = r.deliver(ctx, func(ctx context.Context) error { return await(ctx, r.count, before+2*h.backlog) })
		p.drained = time.Since(began)
		return err
	})
}
