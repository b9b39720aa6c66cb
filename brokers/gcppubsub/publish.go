package gcppubsub

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/gorm-fanout/fanout/brokers"
)

// Publish implements [brokers.Broker]. Keys go side by side; the messages of one key go in a chain
// of requests, each sent after the one before it was confirmed. A request that Pub/Sub refuses
// because of one message is taken apart until that message is alone. Nothing further is sent to a
// topic or a server that has proved unavailable; what is left of the call is brokers.ErrNotSent.
func (b *Broker) Publish(ctx context.Context, msgs []brokers.Message) []brokers.Result {
	results := make([]brokers.Result, len(msgs))
	if !b.gate.Enter() {
		for i := range results {
			results[i].Err = brokers.ErrClosed
		}
		return results
	}
	defer b.gate.Leave()

	p := &publication{Broker: b, msgs: msgs, results: results, missing: map[string]error{}}
	var chains errgroup.Group
	chains.SetLimit(b.options.concurrency)
	for _, chain := range p.plan() {
		chains.Go(func() error {
			p.work(ctx, chain)
			return nil
		})
	}
	_ = chains.Wait()
	return results
}

// publication is one call of Publish. Goroutines share it; each writes the results of its own
// messages.
type publication struct {
	*Broker

	msgs    []brokers.Message
	results []brokers.Result

	mu      sync.Mutex
	out     error            // set when the broker as a whole is out
	missing map[string]error // topics that are out
}

// work sends the batches of a chain until one fails; those behind it are not sent.
func (p *publication) work(ctx context.Context, c chain) {
	var failed error
	for _, b := range c {
		if failed != nil {
			p.skip(ctx, b, failed)
			continue
		}
		failed = p.deliver(ctx, b)
	}
}

// skip leaves a batch unsent. Where it went out before, in a request whose end nobody knows, its
// messages are not "not sent". Nor are they to blame: if they lost an attempt each time that the
// head of their key fails, they would be abandoned together with it.
func (p *publication) skip(ctx context.Context, b *batch, why error) {
	class, _ := brokers.Classify(b.unsure)
	switch {
	case b.unsure == nil:
		p.fail(b, brokers.NotSentBecause(why))
	case class == brokers.ClassRetryable && ctx.Err() == nil:
		p.fail(b, brokers.Unavailable(brokers.ScopeDestination,
			fmt.Errorf("%w: perhaps it has arrived; it waits for another message of the same request", errors.Unwrap(b.unsure))))
	default:
		p.fail(b, b.unsure)
	}
}

func (p *publication) fail(b *batch, err error) {
	for _, i := range b.indexes {
		p.results[i].Err = err
	}
}

// obstacle says why nothing can be sent to a topic, nil = nothing is in the way.
func (p *publication) obstacle(ctx context.Context, topic string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out != nil {
		return p.out
	}
	return p.missing[topic]
}

// note remembers an outage, for the requests that are still to come.
func (p *publication) note(topic string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, scope := brokers.Classify(err); scope == brokers.ScopeBroker {
		p.out = err
	} else {
		p.missing[topic] = err
	}
}
