package rabbitmq

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
)

// Broker publishes to one exchange of one virtual host, over one connection. Make one with [Open]. All
// methods are safe for concurrent use.
type Broker struct {
	options     options
	url         string // holds the password
	dialTimeout time.Duration
	limit       atomic.Int64 // bytes of the largest payload, as far as is known
	gate        adapter.Gate

	life context.Context //nolint:containedctx // of dials, which serve all who wait for them, and not one caller
	end  context.CancelFunc

	mu      sync.Mutex
	current *session // nil before the first one
	dialing *dialing // nil while none is in progress
}

// Capabilities implements [brokers.Broker].
func (b *Broker) Capabilities() brokers.Capabilities {
	return brokers.Capabilities{Ordering: true, MaxMessageBytes: b.options.maxBytes, MaxBatch: window, KeysInTurn: true}
}

// Ping implements [brokers.Broker]. It connects where there is no connection, and asks for the exchange,
// without which nothing can be published. A server that takes no messages because it lacks memory or disk space is an
// error, once it has said so.
func (b *Broker) Ping(ctx context.Context) error { return b.ask(ctx, "ping", b.look) }

// CheckDestination implements [brokers.DestinationChecker]. All destinations have one exchange, so it
// asks what Ping asks. AMQP has no way to ask whether a message would reach a queue, or whether the user
// may write: that is found out by publishing.
func (b *Broker) CheckDestination(ctx context.Context, destination string) error {
	return b.ask(ctx, fmt.Sprintf("check destination %q", destination), b.look)
}

// look asks whether the exchange is there (exchange.declare, passive), unless [Settings.CreateDestinations] makes it.
func (b *Broker) look(c *channel) error {
	if b.options.declare {
		return c.Confirm(false) // once more, which changes nothing
	}
	return c.ExchangeDeclarePassive(b.options.exchange, amqp.ExchangeTopic, true, false, false, false, nil)
}

// ask puts a question to the server.
func (b *Broker) ask(ctx context.Context, what string, question func(*channel) error) error {
	if !b.gate.Enter() {
		return brokers.ErrClosed
	}
	defer b.gate.Leave()
	if err := ctx.Err(); err != nil {
		return brokers.Unavailable(brokers.ScopeBroker, fmt.Errorf("rabbitmq: %s: %w", what, err))
	}
	s, err := b.session(ctx)
	if err == nil {
		err = s.ask(ctx, question)
	}
	if err == nil {
		return nil
	}
	v := b.judge(err)
	return brokers.Unavailable(v.scope, v.advise(fmt.Errorf("rabbitmq: %s: %w", what, err)))
}

// closePatience bounds the farewell from a server.
const closePatience = 2 * time.Second

// Close implements [brokers.Broker]. Publishes that are still in progress when ctx ends lose their
// connection, and say so in their results.
func (b *Broker) Close(ctx context.Context) error {
	first, err := b.gate.Close(ctx)
	if !first {
		return nil
	}
	b.end()
	b.mu.Lock()
	d := b.dialing
	b.mu.Unlock()
	if d != nil {
		<-d.done // at once, since its context has ended
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.current != nil {
		patience := time.Now().Add(closePatience)
		if deadline, set := ctx.Deadline(); set && deadline.Before(patience) {
			patience = deadline
		}
		b.current.close(patience)
	}
	if err != nil {
		return fmt.Errorf("rabbitmq: close: %w", err)
	}
	return nil
}
