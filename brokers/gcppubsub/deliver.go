package gcppubsub

import (
	"context"
	"fmt"

	"github.com/gorm-fanout/fanout/brokers"
)

// deliver sends a batch, in one request or in parts, and gives its messages their results. It
// returns the first failure.
func (p *publication) deliver(ctx context.Context, b *batch) error {
	open, failed := p.attempt(ctx, b)
	if open {
		return p.takeApart(ctx, b, failed)
	}
	return failed
}

// attempt sends a batch in one request. It gives the messages their results, unless open is true:
// then the failure may be the fault of one message among several.
func (p *publication) attempt(ctx context.Context, b *batch) (open bool, failed error) {
	if why := p.Obstacle(ctx, b.indexes[0]); why != nil { // that of all of them
		p.skip(ctx, b, why)
		return false, why
	}
	ids, err := p.request(ctx, b)
	switch class, _ := brokers.Classify(err); {
	case err == nil && len(ids) == len(b.indexes):
		for n, i := range b.indexes {
			p.Confirm(i, ids[n])
		}
		return false, nil
	case err == nil:
		err = brokers.Retryable(fmt.Errorf("gcppubsub: publish to %q: %d ids for %d messages", b.topic, len(ids), len(b.indexes)))
	case class != brokers.ClassUnavailable && len(b.indexes) > 1 && ctx.Err() == nil:
		return true, err
	}
	p.fail(b, err)
	return false, err
}

// takeApart delivers a batch that failed in two halves. Pub/Sub takes or refuses a request as a
// whole and does not say which message it did not like: halving finds it, and spares its
// neighbours.
func (p *publication) takeApart(ctx context.Context, b *batch, failed error) error {
	left, right := b.halves()
	if b.keyed {
		return first(p.deliver(ctx, left), p.deliver(ctx, right))
	}
	if class, _ := brokers.Classify(failed); class == brokers.ClassPermanent { // several of them may be refused
		return first(p.deliver(ctx, left), p.deliver(ctx, right))
	}
	// It need not be a message's fault. If it is, one of the halves passes; if not, a thousand
	// requests more would be no help.
	leftOpen, leftFailed := p.attempt(ctx, left)
	rightOpen, rightFailed := p.attempt(ctx, right)
	switch {
	case leftOpen && rightOpen:
		p.fail(left, leftFailed)
		p.fail(right, rightFailed)
	case leftOpen:
		leftFailed = p.takeApart(ctx, left, leftFailed)
	case rightOpen:
		rightFailed = p.takeApart(ctx, right, rightFailed)
	}
	return first(leftFailed, rightFailed)
}

func first(err, other error) error {
	if err != nil {
		return err
	}
	return other
}
