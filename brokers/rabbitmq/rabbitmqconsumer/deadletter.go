package rabbitmqconsumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/gorm-fanout/fanout/inbox/consumer"
)

const (
	// publishTimeout bounds the publishing of one dead letter.
	publishTimeout = 10 * time.Second
	// defaultFrame is the size of a frame where the server names none. All properties travel in one;
	// a server closes the connection of a client that sends a larger one.
	defaultFrame = 128 << 10
	// addedBytes is more than the headers of a dead letter, and all properties that are no headers.
	addedBytes = 8 << 10
)

// rejectLetter leaves a message to the dead letter exchange of its queue.
func rejectLetter(_ context.Context, e *consumer.Entry) error {
	d := e.First().(*delivery) //nolint:forcetypeassert // the only kind there is
	d.rejected = true
	return d.Reject(false)
}

// publishLetter publishes a message to the exchange of dead letters.
func publishLetter(ctx context.Context, e *consumer.Entry) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	d := e.First().(*delivery) //nolint:forcetypeassert // the only kind there is
	r := d.claims.run
	to := r.to
	if err := r.letters.publish(ctx, r.dial, to, letter(d, e)); err != nil {
		return fmt.Errorf("publish to exchange %q with routing key %q: %w", to.exchange, to.routingKey, err)
	}
	return nil
}

// letter is a message as it was, with what is known of its end. It does not expire, and says no user,
// whom the server would compare with the one who is logged in.
func letter(d *delivery, e *consumer.Entry) amqp.Publishing {
	out := amqp.Publishing{
		Headers: maps.Clone(d.Headers), ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: amqp.Persistent,
		Priority: d.Priority, CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, MessageId: d.MessageId, Timestamp: d.Timestamp, Type: d.Type,
		AppId: d.AppId, Body: d.Body,
	}
	// A sender's CC and BCC would have the server route by them.
	delete(out.Headers, "CC")
	delete(out.Headers, "BCC")
	frame := d.claims.conn.Config.FrameSize
	if frame <= 0 {
		frame = defaultFrame
	}
	if size(out.Headers)+addedBytes > frame {
		return out // without anything added it fits, as it has come
	}
	if out.Headers == nil {
		out.Headers = amqp.Table{}
	}
	for _, added := range consumer.DeadLetterAttributes(e, d.claims.run.queue) {
		out.Headers[added.Name] = added.Value
	}
	return out
}

// size is more than a header's value takes on the wire.
func size(value any) (bytes int) {
	const most = 16 // bytes of anything that is no text, list or table; a length
	switch value := value.(type) {
	case string:
		bytes = len(value)
	case []byte:
		bytes = len(value)
	case []any:
		for _, each := range value {
			bytes += size(each)
		}
	case amqp.Table:
		for name, each := range value {
			bytes += len(name) + size(each)
		}
	}
	return bytes + most
}

// letterBox publishes dead letters, one after the other, over a connection of its own: a server that is
// short of memory or disk reads no more from one that publishes, confirmations of messages among it.
type letterBox struct {
	mu       sync.Mutex
	conn     *amqp.Connection
	channel  *amqp.Channel
	returned chan amqp.Return
}

var errNotRouted = errors.New("no queue is bound for it: bind one")

func (b *letterBox) publish(ctx context.Context, dial func(context.Context) (*amqp.Connection, error), to *letters, out amqp.Publishing) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn == nil || b.conn.IsClosed() {
		conn, err := dial(ctx)
		if err != nil {
			return err
		}
		b.conn, b.channel = conn, nil
	}
	conn := b.conn
	defer context.AfterFunc(ctx, func() { _ = conn.CloseDeadline(time.Now()) })() // the client would wait for an answer forever
	if b.channel == nil || b.channel.IsClosed() {
		channel, err := conn.Channel()
		if err != nil {
			return err
		}
		if err := channel.Confirm(false); err != nil {
			return errors.Join(err, channel.Close())
		}
		// It is said that a message was returned before it is said that it was confirmed.
		b.channel, b.returned = channel, channel.NotifyReturn(make(chan amqp.Return, 1))
	}
	confirmation, err := b.channel.PublishWithDeferredConfirmWithContext(ctx, to.exchange, to.routingKey, true, false, out)
	if err != nil {
		return err
	}
	acked, err := confirmation.WaitContext(ctx)
	select {
	case <-b.returned:
		return errNotRouted
	default:
	}
	switch {
	case err != nil: // the connection is closed, since its answer would be taken for that of the next one
		return fmt.Errorf("no confirmation: %w", err)
	case !acked:
		return errors.New("the server has refused it, or its exchange is missing")
	}
	return nil
}

// close ends the connection, where there is one.
func (b *letterBox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil {
		_ = b.conn.CloseDeadline(time.Now().Add(closing))
	}
}
