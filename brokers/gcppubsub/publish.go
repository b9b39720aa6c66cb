package gcppubsub

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
)

// Publish implements [brokers.Broker]. Keys go side by side; the messages of one key go in a chain
// of requests, each sent after the one before it was confirmed. A request that Pub/Sub refuses
// because of one message is taken apart until that message is alone. Nothing further is sent to a
// topic or a server that has proved unavailable; what is left of the call is brokers.ErrNotSent.
func (b *Broker) Publish(ctx context.Context, msgs []brokers.Message) []brokers.Result {
	if !b.gate.Enter() {
		return adapter.Closed(msgs)
	}
	defer b.gate.Leave()

	p := &publication{Broker: b, msgs: msgs}
	p.Begin(msgs, nil)
	var chains errgroup.Group
	chains.SetLimit(b.options.concurrency)
	for _, chain := range p.plan(ctx) {
		chains.Go(func() error {
			for _, b := range chain {
				_ = p.deliver(ctx, b) // the account knows, and holds what is behind it
			}
			return nil
		})
	}
	_ = chains.Wait()
	return p.Results(ctx)
}

// publication is one call of Publish, which goroutines share.
type publication struct {
	*Broker
	adapter.Call

	msgs []brokers.Message
}

// skip leaves a batch unsent. Where it went out before, in a request whose end is not known, its
// messages are not "not sent". Nor are they to blame: if they lost an attempt each time that the
// head of their key fails, they would be abandoned together with it.
func (p *publication) skip(ctx context.Context, b *batch, why error) {
	class, _ := brokers.Classify(b.unsure)
	switch {
	case b.unsure == nil:
		for _, i := range b.indexes {
			p.Skip(i, why)
		}
	case class == brokers.ClassRetryable && ctx.Err() == nil:
		p.settle(b, brokers.Unavailable(brokers.ScopeDestination,
			fmt.Errorf("%w: perhaps it has arrived; it waits for another message of the same request", errors.Unwrap(b.unsure))))
	default:
		p.settle(b, b.unsure)
	}
}

func (p *publication) settle(b *batch, err error) {
	for _, i := range b.indexes {
		p.Settle(i, err)
	}
}

func (p *publication) fail(b *batch, err error) {
	for _, i := range b.indexes {
		p.Fail(i, err)
	}
}
