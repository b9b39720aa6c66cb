package rabbitmqconsumer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumer"
)

// heartbeat finds a connection that has gone silent within thrice as long.
const heartbeat = 10 * time.Second

// closing bounds the goodbye to a server.
const closing = 5 * time.Second

// receive consumes until ctx ends or it cannot continue.
func (r *run) receive(ctx context.Context) error {
	outage := consumer.Outage{Log: r.log}
	consumed := false
	for n := 1; ; n++ {
		err := r.consume(ctx, n, func() {
			consumed = true
			outage.Over(ctx)
		})
		if ctx.Err() != nil {
			return nil //nolint:nilerr // that is what it was told
		}
		if advice := final(err); advice != "" && !consumed {
			return fmt.Errorf("rabbitmqconsumer: consume %s: %w: %s", r.queue, err, advice)
		}
		if !consumer.Pause(ctx, outage.Failed(ctx, err)) {
			return nil
		}
	}
}

// final is the advice for an error that waiting does not cure; empty where it does.
func final(err error) string {
	var refused *amqp.Error
	if !errors.As(err, &refused) || !refused.Server { // the client says of a connection lost in the login that it was refused
		return ""
	}
	switch {
	case refused.Code == amqp.NotFound && strings.Contains(refused.Reason, "no queue '"): // not one whose node is down
		return "declare the queue and bind it, or check its name and the virtual host"
	case refused.Code == amqp.NotAllowed:
		return "check the virtual host, and the user's permissions in it"
	case refused.Code == amqp.AccessRefused:
		return "check user and password, and that the user may read from the queue (rabbitmqctl set_permissions)"
	}
	return ""
}

// consume is the life of the n-th connection. It returns why it ended. Where it ended by ctx, all
// that is claimed on it goes back to the queue, in its order.
func (r *run) consume(ctx context.Context, n int, begun func()) error {
	conn, err := r.dial(ctx)
	if err != nil {
		return err
	}
	hangUp := func() { _ = conn.CloseDeadline(time.Now().Add(closing)) }
	defer hangUp()
	claims := &claims{run: r, number: n, conn: conn}
	asking, cancel := context.WithTimeout(ctx, r.dialTimeout)
	stop := context.AfterFunc(asking, hangUp) // the client would wait for an answer forever
	deliveries, err := claims.subscribe()
	stop()
	cancel()
	if err != nil {
		return err
	}
	begun()
	for {
		select {
		case <-ctx.Done():
			return nil
		case d, open := <-deliveries:
			if open {
				claims.take(&d) //nolint:contextcheck // handlers outlive ctx: they have the session's
				continue
			}
		}
		break
	}
	err = claims.why()
	// The server gives all that was claimed to others, or to us again.
	over, cancel := context.WithCancel(ctx)
	cancel()
	r.Withdraw(over, func(e *consumer.Entry) bool { return e.First().(*delivery).claims == claims }) //nolint:forcetypeassert // the only kind there is
	return err
}

// dial connects and logs in, until ctx ends.
func (r *run) dial(ctx context.Context) (*amqp.Connection, error) {
	ctx, cancel := context.WithTimeout(ctx, r.dialTimeout)
	defer cancel()
	var raw net.Conn
	stop := func() bool { return true }
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName("fanout consumer " + r.config.Consumer)
	conn, err := amqp.DialConfig(r.url, amqp.Config{
		Heartbeat: heartbeat, Properties: properties, TLSClientConfig: r.config.TLS.Clone(),
		Dial: func(network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err == nil {
				raw, stop = conn, context.AfterFunc(ctx, func() { _ = conn.Close() }) // the handshake knows no context
			}
			return conn, err
		},
	})
	if !stop() && err == nil {
		err = fmt.Errorf("no answer to the handshake: %w", ctx.Err())
	}
	if errors.Is(err, amqp.ErrCredentials) || errors.Is(err, amqp.ErrVhost) { // which the client takes for the cause
		err = fmt.Errorf("the connection was lost while logging in: check user, password and virtual host; guest may log in from the server's own machine only (%w)", err)
	}
	if err != nil {
		if raw != nil {
			_ = raw.Close() // which ends the goroutines of the connection, too
		}
		return nil, fmt.Errorf("connect: %w", err)
	}
	return conn, nil
}

// claims is a subscription, and what is claimed by it: with its channel, all of it ends.
type claims struct {
	run     *run
	number  int
	conn    *amqp.Connection
	channel *amqp.Channel
	closed  chan *amqp.Error
}

func (c *claims) subscribe() (<-chan amqp.Delivery, error) {
	channel, err := c.conn.Channel()
	if err != nil {
		return nil, err
	}
	c.channel, c.closed = channel, channel.NotifyClose(make(chan *amqp.Error, 1))
	if err := channel.Qos(c.run.config.MaxOutstandingMessages, 0, false); err != nil {
		return nil, err
	}
	deliveries, err := channel.Consume(c.run.queue, "", false, false, false, false, nil)
	if err != nil {
		return nil, fmt.Errorf("consume: %w", err)
	}
	return deliveries, nil
}

// why says why the subscription has ended.
func (c *claims) why() error {
	select {
	case err := <-c.closed:
		if err != nil {
			return err
		}
		return errors.New("the connection was closed")
	default: // the server has cancelled it alone
		return errors.New("the server has cancelled the subscription: the queue was deleted, or has moved to another node")
	}
}

// take claims a delivery.
func (c *claims) take(d *amqp.Delivery) {
	o := &c.run.config
	position := strconv.FormatUint(d.DeliveryTag, 10)
	attributes := attributesOf(d)
	message, broken := consumer.Read(&o.ConsumerConfig, &inbox.RawMessage{
		Payload: d.Body, Attributes: attributes, OrderingKey: attributes[inbox.FieldOrderingKey],
		Source: o.Source(c.run.queue), Position: position, Published: d.Timestamp,
	}, d.MessageId)
	if count, counted := number(d.Headers["x-delivery-count"]); counted {
		message.Deliveries = int(min(count, 1<<30)) + 1
	}
	// Ids are the sender's, and need not be unique; a tag is that of its channel.
	e := &consumer.Entry{ID: strconv.Itoa(c.number) + "/" + position, Bytes: len(d.Body), Message: message, Broken: broken}
	c.run.Take(e, &delivery{claims: c, Delivery: *d})
}

// delivery implements [consumer.Delivery].
type delivery struct {
	amqp.Delivery

	claims   *claims
	rejected bool
}

// Ack implements [consumer.Delivery].
func (d *delivery) Ack() {
	if d.rejected {
		return
	}
	if err := d.Delivery.Ack(false); err != nil {
		d.claims.run.AckFailed("ack", strconv.FormatUint(d.DeliveryTag, 10), err)
	}
}

// Nack implements [consumer.Delivery]. What is not confirmed goes back to its place in the queue when
// the channel is closed, all of it together: so its order stays.
func (d *delivery) Nack() {}

// attributesOf are the headers that are texts, and the properties under the names of flat fields.
func attributesOf(d *amqp.Delivery) map[string]string {
	attributes := make(map[string]string, len(d.Headers)+4)
	for name, value := range d.Headers {
		text, is := value.(string)
		if !is {
			continue
		}
		for _, prefix := range []string{"cloudEvents:", "cloudEvents_"} { // the AMQP binding of CloudEvents
			if short, cut := strings.CutPrefix(name, prefix); cut {
				name = "ce-" + short
			}
		}
		attributes[name] = text
	}
	for _, property := range []struct{ name, value string }{
		{"id", d.MessageId}, {"type", d.Type}, {"content-type", d.ContentType}, {"correlation_id", d.CorrelationId},
	} {
		if property.value != "" {
			attributes[property.name] = property.value
		}
	}
	return attributes
}

// number is a header as a number that is not negative.
func number(value any) (n int64, ok bool) {
	switch value := value.(type) {
	case int64:
		n = value
	case int32:
		n = int64(value)
	case int16:
		n = int64(value)
	case int8:
		n = int64(value)
	case uint8:
		n = int64(value)
	default:
		return 0, false
	}
	return n, n >= 0
}
