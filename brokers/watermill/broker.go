// Package watermill publishes through any publisher of Watermill (https://watermill.io): Kafka,
// NATS JetStream, RabbitMQ, SQS and SNS, and whatever else it has a publisher for.
//
//	publisher, err := nats.NewPublisher(...)
//	relay, err := fanout.Open(ctx, cfg, fanout.WithBroker("partner", watermill.New(publisher)))
//
// A message becomes a message of Watermill: the payload byte for byte, the id as its UUID, the flat
// fields (id, type, correlation_id, content-type, traceparent ...) as its metadata, and the
// ordering key as metadata under the name "ordering_key", where a partitioner finds it. The topic
// is the destination, or what [WithTopic] makes of it. docs/brokers.md says what to set for each
// broker.
//
// # What a publisher must do
//
// It must have the broker's confirmation when its Publish returns, be safe for concurrent use as
// Watermill demands, and not let a message overtake one whose Publish had returned before.
//
// # What Watermill's contract leaves open
//
// Publish of several messages answers with one error, which does not say how many of them were
// sent: so each message has a call of its own, one after the other within an ordering key, keys
// side by side.
//
// Publish has no context: a call that hangs cannot be ended. Publish of this package returns all
// the same when its context ends, but the key of the message that hangs stays closed until its call
// has returned, since the message may still appear, after later ones. How many calls can hang is
// bounded by [WithConcurrency].
//
// An error has no class. [WithClassify] gives it one; [Broker.Publish] says how errors without one
// are judged.
package watermill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
)

// patience is how long something may take that cannot be interrupted and is expected to be over in
// a moment.
const patience = time.Second

// Broker publishes through a publisher of Watermill. Make one with [New]. All methods are safe for
// concurrent use.
type Broker struct {
	publisher message.Publisher
	options   options
	gate      adapter.Gate
	traffic   *traffic
}

// New returns a broker that publishes through publisher, and closes it when it is closed. It panics
// when publisher is nil.
func New(publisher message.Publisher, opts ...Option) *Broker {
	if publisher == nil {
		panic("watermill: New: the publisher is nil; make one first, and look at the error of its constructor")
	}
	b := &Broker{publisher: publisher, options: defaults()}
	for _, opt := range opts {
		opt(&b.options)
	}
	b.traffic = newTraffic(b.options.concurrency)
	return b
}

// Capabilities implements [brokers.Broker]. What they are depends on the broker behind the
// publisher: see [WithOrdering] and [WithMaxMessageBytes].
func (b *Broker) Capabilities() brokers.Capabilities {
	return brokers.Capabilities{Ordering: b.options.ordering, MaxMessageBytes: b.options.maxBytes, KeysInTurn: b.options.ordering}
}

// Ping implements [brokers.Broker] with the function of [WithPing]. Without one it succeeds until
// Close: Watermill has no way to ask.
func (b *Broker) Ping(ctx context.Context) error {
	if !b.gate.Enter() {
		return brokers.ErrClosed
	}
	defer b.gate.Leave()
	err := ctx.Err()
	if err == nil && b.options.ping != nil {
		err = b.options.ping(ctx)
	}
	if err != nil {
		return brokers.Unavailable(brokers.ScopeBroker, fmt.Errorf("watermill: ping: %w", err))
	}
	return nil
}

// Close implements [brokers.Broker]: it waits for the publishes in progress, those that hang
// included, at most until ctx ends, and closes the publisher in any case. A publisher that is not
// closed a second after ctx has ended is left to itself.
func (b *Broker) Close(ctx context.Context) error {
	first, err := b.gate.Close(ctx)
	if !first {
		return nil
	}
	// Closing has no context either. Publishes that did not end in time usually end by it.
	closing := make(chan error, 1)
	go func() { closing <- b.closePublisher() }()
	if err = errors.Join(err, closed(ctx, closing)); err != nil {
		return fmt.Errorf("watermill: close: %w", err)
	}
	return nil
}

func (b *Broker) closePublisher() (err error) {
	defer func() {
		if r := recover(); r != nil { // nothing above its goroutine recovers
			err = fmt.Errorf("the publisher panicked: %v", r)
		}
	}()
	return b.publisher.Close()
}

// closed waits for what a publisher says when it has closed.
func closed(ctx context.Context, closing <-chan error) error {
	select {
	case err := <-closing:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(patience) // an ended context must not win against a publisher that needs but a moment
	defer timer.Stop()
	select {
	case err := <-closing:
		return err
	case <-timer.C:
		return fmt.Errorf("the publisher does not come to an end: %w", ctx.Err())
	}
}
