package rabbitmq

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/gorm-fanout/fanout/brokers"
)

// cannot ends a call for which there is no connection or channel: the first message ran into it, the
// rest was not sent. A caller who has stopped waiting learns no more than that.
func (p *publication) cannot(ctx context.Context, err error) {
	if errors.Is(ctx.Err(), context.Canceled) && !errors.As(err, new(*alarm)) {
		p.stop(err)
		return
	}
	err = p.unavailable(err)
	p.Fail(p.ready[0], err)
	p.stop(err)
}

// stop leaves unsent what is ready, and all behind it.
func (p *publication) stop(why error) {
	p.Stop(why)
	p.ready = nil
}

func (p *publication) unavailable(err error) error {
	v := p.judge(err)
	said := v.advise(fmt.Errorf("rabbitmq: publish to exchange %q: %w", p.options.exchange, err))
	if answer := (*amqp.Error)(nil); errors.As(err, new(*alarm)) || errors.As(err, &answer) && answer.Server && answer.Code != amqp.FrameError {
		return brokers.Unavailable(v.scope, said)
	}
	return brokers.Unreachable(v.scope, said)
}

// end ends a call whose context has ended, or whose connection the server has blocked. Whether the
// messages in flight arrive is not known.
func (p *publication) end(ctx context.Context) {
	why := context.Cause(ctx)
	unconfirmed := fmt.Errorf("not confirmed, and perhaps published: %w", why)
	err := p.unavailable(unconfirmed)
	if errors.Is(ctx.Err(), context.Canceled) && !errors.As(why, new(*alarm)) {
		// The caller stopped waiting: the server need not be ill.
		err = brokers.Retryable(fmt.Errorf("rabbitmq: publish to exchange %q: %w", p.options.exchange, unconfirmed))
	}
	for _, m := range p.flight {
		p.Fail(m.index, err)
	}
	p.stop(err)
}

// closed deals with a channel that was closed while messages were in flight, by the server or together
// with its connection, and reports whether the call goes on.
//
// RabbitMQ takes the messages of a channel one after the other. When it does not like one it closes the
// channel, says why, and drops those behind it; confirmations of those before it that it has not sent
// are lost. Where its words tell which message it was, that one gets the blame, and the others are sent
// again over another channel: some may arrive twice, none out of order, as no two of them have the same
// key. It cannot go on forever, as each time a message or a routing key is out.
func (p *publication) closed(ctx context.Context) bool {
	var said *amqp.Error
	select {
	case said = <-p.channel.closed: // nil when it was closed without a word
	default: // the library sends it before it ends confirmations, but not before a write fails
		select {
		case said = <-p.channel.closed:
		case <-ctx.Done():
			p.end(ctx)
			return false
		}
	}
	p.confirmed()
	flight := p.flight
	p.flight, p.bytes, p.channel = nil, 0, nil
	if culprits := p.culprits(flight, said); culprits > 0 {
		again := make([]int, 0, len(flight)-culprits+len(p.ready))
		for _, m := range flight {
			if p.Open(m.index) {
				again = append(again, m.index)
			}
		}
		p.ready = append(again, p.ready...)
		return true
	}
	if len(flight) == 0 && len(p.ready) == 0 {
		return false
	}
	if ctx.Err() != nil && brokeOff(said) { // work has cut the connection, and that is no news
		p.flight = flight
		p.end(ctx)
		return false
	}
	var why error = amqp.ErrClosed
	if said != nil {
		why = said
	}
	err := p.unavailable(fmt.Errorf("not confirmed, and perhaps published: the channel was closed: %w", why))
	if len(flight) == 0 { // it had been closed before
		p.cannot(ctx, why)
		return false
	}
	for _, m := range flight {
		p.Fail(m.index, err)
	}
	p.stop(err)
	return false
}

// brokeOff is true of a channel that ended with its connection, and not by the server's word.
func brokeOff(said *amqp.Error) bool { return said == nil || said.Code == amqp.FrameError }

// confirmed gives results to those that the server had confirmed before it closed the channel.
func (p *publication) confirmed() {
	p.collectReturns()
	left := p.flight[:0:0]
	for _, m := range p.flight {
		if m.confirmation == nil || !m.confirmation.Acked() || m.returned != nil {
			left = append(left, m)
			continue
		}
		p.release(m.index)
	}
	p.flight = left
}

// culprits fails the messages that the server closed the channel for, as far as it tells, and returns
// their number.
func (p *publication) culprits(flight []sent, said *amqp.Error) (n int) {
	limit := limitIn(said)
	if limit > 0 {
		p.limit.Store(min(limit, p.limit.Load()))
	}
	for _, m := range flight {
		size := int64(len(p.msgs[m.index].Payload))
		switch {
		case limit > 0 && size > limit:
			large := brokers.Permanent(fmt.Errorf("rabbitmq: publish to %q: the payload has %d bytes: %w", m.key, size, said))
			p.Fail(m.index, brokers.Refused(brokers.ScopeBroker, large)) // the limit may be below what any message has
		case forbids(said, m.key):
			v := p.judge(said)
			p.Fail(m.index, brokers.Unavailable(v.scope, v.advise(fmt.Errorf("rabbitmq: publish to %q: %w", m.key, said))))
		default:
			continue
		}
		n++
	}
	return n
}
