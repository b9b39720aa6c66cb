package rabbitmq

import (
	"context"
	"fmt"
	"net"

	amqp "github.com/rabbitmq/amqp091-go"
)

// dialing is one attempt to connect, for all who wait for a connection.
type dialing struct {
	done    chan struct{}
	session *session // set when done is closed
	err     error    // likewise
}

// session returns the connection, and makes one where there is none. One attempt is made at a time;
// whoever needs the connection waits for it, as long as the caller's own context lasts.
func (b *Broker) session(ctx context.Context) (*session, error) {
	b.mu.Lock()
	if s := b.current; s != nil && !s.conn.IsClosed() {
		b.mu.Unlock()
		return s, nil
	}
	d := b.dialing
	if d == nil {
		d = &dialing{done: make(chan struct{})}
		b.dialing = d
		go b.dial(d) //nolint:contextcheck // it serves all who wait, and ends with the broker
	}
	b.mu.Unlock()
	select {
	case <-d.done:
		return d.session, d.err
	case <-ctx.Done():
		return nil, fmt.Errorf("connect: %w", ctx.Err())
	}
}

func (b *Broker) dial(d *dialing) {
	ctx, cancel := context.WithTimeout(b.life, b.dialTimeout)
	defer cancel()
	s, err := b.connect(ctx)
	if err == nil && b.options.declare {
		if err = b.declare(ctx, s); err != nil {
			s.cut()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dialing = nil
	if err == nil {
		b.current, d.session = s, s
		b.limit.Store(int64(b.options.maxBytes)) // what was learned of another server need not hold for this one
	} else {
		d.err = fmt.Errorf("connect: %w", err)
	}
	close(d.done)
}

// connect connects and logs in, until ctx ends.
func (b *Broker) connect(ctx context.Context) (*session, error) {
	var (
		raw  net.Conn
		stop = func() bool { return true }
	)
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName("fanout")
	config := amqp.Config{
		Heartbeat: b.options.heartbeat, Properties: properties, TLSClientConfig: b.options.tls.Clone(),
		Dial: func(network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			raw = conn
			stop = context.AfterFunc(ctx, func() { _ = conn.Close() }) // the handshake knows no context
			return conn, nil
		},
	}
	conn, err := amqp.DialConfig(b.url, config)
	if !stop() {
		err = fmt.Errorf("no answer to the handshake: %w", ctx.Err())
	}
	if err != nil {
		if raw != nil {
			_ = raw.Close() // which ends the goroutines of the connection, too
		}
		return nil, err
	}
	return newSession(conn, raw), nil
}

// declare makes the exchange, or finds that it is there as it would be made.
func (b *Broker) declare(ctx context.Context, s *session) error {
	return s.ask(ctx, func(c *channel) error {
		if err := c.ExchangeDeclare(b.options.exchange, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
			return fmt.Errorf("declare exchange %q: %w", b.options.exchange, err)
		}
		return nil
	})
}
