package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
)

const (
	// window is how many messages of a call may be unconfirmed at a time, and windowBytes how large
	// they may be together; one may be larger.
	window      = 500
	windowBytes = 8 << 20

	// grace is how long a write to the server may go on when the context has ended; then it gets stuck
	// in a connection that takes nothing, and is ended with it.
	grace = time.Second
)

// Publish implements [brokers.Broker]. Messages are sent without waiting for each other, up to 500 at
// a time, except for those of one key: each of them is sent when the one before it was confirmed, as
// the documentation of the package explains. Nothing further is sent to a routing key or a server that
// has proved unavailable; what is left of the call is brokers.ErrNotSent.
func (b *Broker) Publish(ctx context.Context, msgs []brokers.Message) []brokers.Result {
	if !b.gate.Enter() {
		return adapter.Closed(msgs)
	}
	defer b.gate.Leave()

	p := &publication{Broker: b, msgs: msgs}
	p.Begin(msgs, func(i int) string { return b.options.routingKey(&msgs[i]) })
	p.ready = p.First()
	p.work(ctx)
	return p.Results(ctx)
}

// publication is one call of Publish, and one goroutine's.
type publication struct {
	*Broker
	adapter.Call

	msgs    []brokers.Message
	ready   []int    // messages that may be sent now, in order
	flight  []sent   // messages that are unconfirmed, in the order in which they were sent
	bytes   int      // of flight
	channel *channel // nil = none is open; flight is on it
}

// sent is a message that was handed to the server.
type sent struct {
	index        int
	key          string // its routing key
	confirmation *amqp.DeferredConfirmation
	returned     *returned // nil = it was not
}

// returned is why the server had no queue for a message.
type returned struct {
	code uint16
	text string
}

// work sends the messages, and returns when each has its result.
func (p *publication) work(ctx context.Context) {
	if len(p.msgs) == 0 {
		return
	}
	if ctx.Err() != nil {
		return // Results says so
	}
	s, err := p.session(ctx)
	if err != nil {
		p.cannot(ctx, err)
		return
	}
	run, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	defer close(done)
	defer context.AfterFunc(run, func() {
		select {
		case <-done:
		case <-time.After(grace):
			s.cut()
		}
	})()
	s.enter(p, cancel)
	defer s.leave(p)
	for more := true; more; {
		more = p.fill(run, s) && p.settle(run)
	}
	switch {
	case p.channel == nil:
	case len(p.flight) == 0:
		s.release(p.channel)
	default:
		s.abandon(p.channel)
	}
}

// fill sends what is ready, as far as there is room for it, and reports whether something is
// unconfirmed.
func (p *publication) fill(ctx context.Context, s *session) bool {
	for len(p.ready) > 0 {
		i := p.ready[0]
		size := len(p.msgs[i].Payload)
		if len(p.flight) == window || len(p.flight) > 0 && p.bytes+size > windowBytes {
			break
		}
		if ctx.Err() != nil {
			break // settle tells what that means
		}
		if p.channel == nil {
			var err error
			if p.channel, err = s.acquire(ctx); err != nil {
				p.cannot(ctx, err)
				return false
			}
		}
		p.ready = p.ready[1:]
		if !p.send(ctx, s, i) {
			return p.closed(ctx)
		}
	}
	if len(p.flight) == 0 && len(p.ready) > 0 {
		if why := context.Cause(ctx); errors.As(why, new(*alarm)) {
			p.cannot(ctx, why)
		} else {
			p.stop(why)
		}
	}
	return len(p.flight) > 0
}

// send sends a message, unless something speaks against it, and is false when the channel proved to be
// closed.
func (p *publication) send(ctx context.Context, s *session, i int) bool {
	if !p.Admit(ctx, i) {
		return true
	}
	m := &p.msgs[i]
	key := p.options.routingKey(m)
	message, omitted, err := p.encode(m, key, s.conn.Config.FrameSize)
	if err != nil {
		p.Fail(i, brokers.Permanent(fmt.Errorf("rabbitmq: publish to %q: %w", key, err)))
		return true
	}
	p.Omit(i, omitted)
	if p.channel.IsClosed() {
		p.ready = append([]int{i}, p.ready...)
		return false
	}
	confirmation, err := p.channel.PublishWithDeferredConfirm(p.options.exchange, key, !p.options.optional, false, message)
	// After an error, too, some of the message may be on its way.
	p.flight, p.bytes = append(p.flight, sent{index: i, key: key, confirmation: confirmation}), p.bytes+len(m.Payload)
	if err != nil && !p.channel.IsClosed() {
		s.cut() // half of a frame may be written; the library leaves it to the reader to find out
	}
	return err == nil
}

// settle waits for the oldest message, gives results to all that are confirmed by then, and reports
// whether there is more to do.
func (p *publication) settle(ctx context.Context) bool {
	if len(p.flight) == 0 { // a channel was closed, and all of it goes again
		return true
	}
	select {
	case <-p.flight[0].confirmation.Done():
	default:
		select {
		case <-p.flight[0].confirmation.Done():
		case <-ctx.Done():
			p.end(ctx)
			return false
		}
	}
	if !p.confirm() {
		return p.closed(ctx)
	}
	return true
}

// confirm gives results to the messages that are confirmed, oldest first, and is false when it comes to
// one whose channel was closed instead.
func (p *publication) confirm() bool {
	for len(p.flight) > 0 {
		oldest := &p.flight[0]
		if oldest.confirmation == nil {
			return false
		}
		select {
		case <-oldest.confirmation.Done():
		default:
			return true
		}
		p.collectReturns() // the server returns a message before it confirms it
		acked := oldest.confirmation.Acked()
		if !acked && p.channel.IsClosed() { // with it the library ends all confirmations
			return false
		}
		m := *oldest
		p.take(m)
		switch {
		case m.returned != nil:
			p.Fail(m.index, brokers.Unavailable(brokers.ScopeDestination, fmt.Errorf("rabbitmq: publish to %q: exchange %q: %d %s: bind a queue to it "+
				"with this routing key, give it an alternate exchange, or count such messages as published (unroutable: drop)",
				m.key, p.options.exchange, m.returned.code, m.returned.text)))
		case !acked:
			p.Fail(m.index, brokers.Unavailable(brokers.ScopeDestination, fmt.Errorf("rabbitmq: publish to %q: exchange %q: %w", m.key, p.options.exchange, errRefused)))
		default:
			p.release(m.index)
		}
	}
	return true
}

var errRefused = errors.New("the server refused the message (basic.nack): a queue that it is routed to is full (x-overflow reject-publish), " +
	"or has failed")

// take takes the oldest message out of flight.
func (p *publication) take(m sent) {
	p.flight, p.bytes = p.flight[1:], p.bytes-len(p.msgs[m.index].Payload)
}

// release confirms a message, and lets the next one of its key go.
func (p *publication) release(i int) {
	p.Confirm(i, "")
	if follower, ok := p.Next(i); ok {
		p.ready = append(p.ready, follower)
	}
}

// collectReturns notes which messages the server has returned. It returns them in the order in which
// they were sent.
func (p *publication) collectReturns() {
	for {
		select {
		case r, open := <-p.channel.returns:
			if !open {
				return
			}
			same := func(m sent) bool {
				return m.returned == nil && m.key == r.RoutingKey && p.msgs[m.index].ID == r.MessageId
			}
			if at := slices.IndexFunc(p.flight, same); at >= 0 {
				p.flight[at].returned = &returned{r.ReplyCode, r.ReplyText}
			}
		default:
			return
		}
	}
}
