package scenario

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// Hung asks what a broker that hangs costs its neighbours: three brokers, of which one never
// answers, beside the same with nothing to be delivered to that one. Both go on at the same time,
// in two databases of one server.
type Hung struct {
	// For is how long messages are written, at Rate per second to each broker.
	For  time.Duration
	Rate int
	// Backlog of each broker, which is drained in the second part.
	Backlog int64
	Payload int
	Keys    int64
}

// DefaultHung are the sizes of a full run.
func DefaultHung() Hung {
	return Hung{For: 30 * time.Second, Rate: 500, Backlog: 100_000, Payload: 500, Keys: 1000}
}

// ShortHung are sizes that only show whether the harness works.
func ShortHung() Hung {
	return Hung{For: 600 * time.Millisecond, Rate: 200, Backlog: 2000, Payload: 100, Keys: 10}
}

const (
	hungBroker = "hung"
	// hungTarget is P9: times the same without a broker that hangs.
	hungTarget = 1.1
	// hungTimeout is the publish timeout, so short that the broker is tried often.
	hungTimeout = 2 * time.Second
)

// healthy are the neighbours.
func healthy() []string { return []string{"one", "two"} }

// never is a broker that does not answer.
type never struct{ confirm }

// Publish implements brokers.Broker.
func (never) Publish(ctx context.Context, msgs []brokers.Message) []brokers.Result {
	<-ctx.Done()
	results := make([]brokers.Result, len(msgs))
	for i := range results {
		results[i].Err = brokers.Unreachable(brokers.ScopeBroker, ctx.Err())
	}
	return results
}

// ages is a store that notes how old the messages of the healthy brokers are when a claim has
// brought them.
type ages struct {
	driver.Store

	mu    sync.Mutex
	noted []time.Duration
}

// Exchange implements driver.Delivery.
func (a *ages) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	exchanged, err := a.Store.Exchange(ctx, completion, claim)
	now := time.Now()
	if claim == nil || claim.Broker == hungBroker {
		return exchanged, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range exchanged.Batch.Messages {
		a.noted = append(a.noted, now.Sub(exchanged.Batch.Messages[i].CreatedAt))
	}
	return exchanged, err
}

// Check implements Scenario.
func (h Hung) Check(int) error {
	if h.For < 3*idleTick || h.Rate < 100 || h.Keys < 1 || h.Payload < 0 || h.Backlog < 1 {
		return fmt.Errorf("%d messages per second with %d keys for %s, and a backlog of %d: use at least 100, 1, %s and 1, and a payload of at least 0 bytes",
			h.Rate, h.Keys, h.For, h.Backlog, 3*idleTick)
	}
	return nil
}

// Run implements Scenario.
func (h Hung) Run(ctx context.Context, o *Options) error {
	return o.withDatabase(ctx, "hung_calm", func(calm *fixture.Database) error {
		return o.withDatabase(ctx, "hung_ill", func(ill *fixture.Database) error {
			for run := range o.Runs {
				if err := h.compare(ctx, o, calm, ill, run); err != nil {
					return err
				}
				o.logf("hung: run %d of %d: done", run+1, o.Runs)
			}
			return nil
		})
	})
}

func (h Hung) compare(ctx context.Context, o *Options, calm, ill *fixture.Database, run int) error {
	parts := []*party{{brokers: healthy()}, {brokers: append(healthy(), hungBroker)}}
	for i, database := range []*fixture.Database{calm, ill} {
		const connections = 8
		table, err := database.Table(ctx, tableOf(run), connections)
		if err != nil {
			return err
		}
		parts[i].table = table
	}
	if err := both(ctx, parts, func(ctx context.Context, p *party) error { return p.live(ctx, o, h) }); err != nil {
		return err
	}
	if err := both(ctx, parts, func(ctx context.Context, p *party) error { return p.drain(ctx, o, h) }); err != nil {
		return err
	}
	for _, p := range parts {
		if err := p.table.Drop(ctx); err != nil {
			return err
		}
	}
	return reportHung(o, parts[0], parts[1])
}

// both runs f for both parties at the same time.
func both(ctx context.Context, parts []*party, f func(context.Context, *party) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range parts {
		group.Go(func() error { return f(ctx, p) })
	}
	return group.Wait()
}

// party is one of the two databases in one run.
type party struct {
	table   *fixture.Table
	brokers []string // that get messages
	ages    []time.Duration
	drained time.Duration
}

// deliver runs an engine while f goes on.
func (p *party) deliver(ctx context.Context, f func(engine *relay.Engine) error) ([]time.Duration, error) {
	store := &ages{Store: p.table.Store}
	policy := outbox.Policy{PublishTimeout: hungTimeout}
	targets := map[string]relay.Target{hungBroker: {Broker: never{}, Policy: policy}}
	for _, name := range healthy() {
		targets[name] = relay.Target{Broker: confirm{}, Policy: policy}
	}
	engine, err := relay.NewEngine(relay.EngineConfig{Stores: map[string]driver.Delivery{"bench": store}, Brokers: targets, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	var group errgroup.Group
	group.Go(func() error { return engine.Run(running) })
	err = f(engine)
	stop()
	return store.noted, errors.Join(err, group.Wait())
}

// live writes at a steady rate and notes how long the healthy brokers' messages take.
func (p *party) live(ctx context.Context, o *Options, h Hung) (err error) {
	p.ages, err = p.deliver(ctx, func(engine *relay.Engine) error {
		began, written, total := time.Now(), int64(0), int64(h.For.Seconds()*float64(h.Rate))
		ticker := time.NewTicker(idleTick)
		defer ticker.Stop()
		for written < total {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-ticker.C:
			}
			due := min(total, int64(time.Since(began).Seconds()*float64(h.Rate)))
			if err := p.fill(ctx, o, h, due-written); err != nil {
				return err
			}
			written = due
			engine.Wake("bench")
		}
		return await(ctx, engine, written)
	})
	return err
}

// drain measures how long the healthy brokers' backlog takes.
func (p *party) drain(ctx context.Context, o *Options, h Hung) error {
	if err := p.table.Empty(ctx); err != nil {
		return err
	}
	if err := p.fill(ctx, o, h, h.Backlog); err != nil {
		return err
	}
	if err := p.table.Vacuum(ctx); err != nil {
		return err
	}
	_, err := p.deliver(ctx, func(engine *relay.Engine) error {
		began := time.Now()
		err := await(ctx, engine, h.Backlog)
		p.drained = time.Since(began)
		return err
	})
	return err
}

func (p *party) fill(ctx context.Context, o *Options, h Hung, rows int64) error {
	keys := make([]int64, len(p.brokers))
	for i := range keys {
		keys[i] = h.Keys
	}
	return p.table.Fill(ctx, o.Log, fixture.Fill{Rows: rows * int64(len(p.brokers)), Brokers: p.brokers, Keys: keys, Prefix: "order-", Payload: h.Payload, Seed: o.Seed})
}

// await waits until the healthy brokers have so many messages each.
func await(ctx context.Context, engine *relay.Engine, each int64) error {
	ctx, cancel := context.WithTimeout(ctx, 10*idlePatience)
	defer cancel()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for {
		done := true
		for _, stats := range engine.Stats() {
			if stats.Broker == hungBroker && stats.Published > 0 {
				return errors.New("scenario: the broker that hangs has taken something")
			}
			done = done && (stats.Broker == hungBroker || stats.Published == each)
		}
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("scenario: not all of %d messages for each broker were delivered: %w", each, ctx.Err())
		case <-ticker.C:
		}
	}
}

func reportHung(o *Options, calm, ill *party) error {
	if len(calm.ages) == 0 || len(ill.ages) == 0 {
		return errors.New("scenario: nothing was claimed")
	}
	s := o.Report.Scenario("hung")
	for _, share := range []float64{0.5, 0.99} {
		name := fmt.Sprintf("p%.0f", 100*share)
		c, i := report.Percentile(calm.ages, share), report.Percentile(ill.ages, share)
		s.Add("latency", name+" without", "ms", report.Milliseconds(c))
		s.Add("latency", name+" with", "ms", report.Milliseconds(i))
		if ratio := float64(i) / float64(c); share == 0.5 {
			s.AddRatio("latency", name+" ratio", ratio, hungTarget)
		} else {
			s.Add("latency", name+" ratio", "x", ratio)
		}
	}
	s.Add("drain", "without", "s", calm.drained.Seconds())
	s.Add("drain", "with", "s", ill.drained.Seconds())
	s.AddRatio("drain", "time ratio", float64(ill.drained)/float64(calm.drained), hungTarget)
	return nil
}
