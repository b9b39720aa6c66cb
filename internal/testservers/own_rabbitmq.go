package testservers

import (
	"context"
	"fmt"
)

// RabbitMQ is a node of a test's own. [Own] tells what can be done with it.
type RabbitMQ struct {
	*Own

	node *rabbitMQNode
}

// OwnRabbitMQ starts a new node of RabbitMQ, with settings (lines of rabbitmq.conf) of the caller's,
// and returns when it answers. The error is [ErrNoBinary] where that is the reason.
func OwnRabbitMQ(ctx context.Context, settings ...string) (*RabbitMQ, error) {
	bin, found := findRabbitMQ(ctx)
	if !found {
		return nil, fmt.Errorf("%w: RabbitMQ (%s names it)", ErrNoBinary, RabbitMQBinVariable)
	}
	node, err := newRabbitMQNode(ctx, bin, settings...)
	if err != nil {
		return nil, err
	}
	own := &Own{Name: rabbitMQName}
	own.run = node.local(ctx, &own.Version)
	if err := own.begin(ctx); err != nil {
		return nil, err
	}
	own.URL = rabbitMQURL(own.Address())
	return &RabbitMQ{Own: own, node: node}, nil
}

// Control runs rabbitmqctl with arguments on the node, which has to run, and returns what it said.
func (r *RabbitMQ) Control(ctx context.Context, args ...string) (string, error) {
	return r.node.control(ctx, args...)
}
