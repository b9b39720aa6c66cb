package rabbitmqconsumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumer"
)

const dialTimeout = 10 * time.Second

// A Consumer hands the messages of one queue to a handler. Make one with [NewConsumer]. Its methods
// are safe for concurrent use.
type Consumer struct {
	url, queue  string
	dialTimeout time.Duration
	config      Config
	to          *letters // nil: no dead letters are published
	handler     inbox.Handler
	log         *slog.Logger
	counts      consumer.Counts
	running     atomic.Pointer[run]
}

// errURL says nothing about the URL it got: what fails to parse is often the password itself,
// unescaped.
var errURL = errors.New("rabbitmqconsumer: the URL is not understood; write amqp://user:password@host:port/vhost, or amqps:// for TLS, " +
	"and escape special characters in the password and the virtual host (@ is %40, / is %2F, # is %23, ? is %3F)")

// NewConsumer returns a consumer of a queue, which has to exist, on the server at a URL,
// amqp://user:password@host:port/vhost, or amqps:// for TLS
// (https://www.rabbitmq.com/docs/uri-spec). Its error names all that is wrong, and shows nothing of
// the URL; nothing is sent yet.
func NewConsumer(url, queue string, handler inbox.Handler, config Config) (*Consumer, error) {
	uri, failed := amqp.ParseURI(url)
	if failed != nil || uri.ConnectionTimeout < 0 {
		failed = errURL
	}
	to, wrong := config.complete(queue, uri.Scheme, handler)
	if err := errors.Join(failed, wrong.Err()); err != nil {
		return nil, err
	}
	return &Consumer{
		url: url, queue: queue, config: config, to: to, handler: handler, log: config.Log.With("queue", queue, "consumer", config.Consumer),
		dialTimeout: cmp.Or(time.Duration(uri.ConnectionTimeout)*time.Millisecond, dialTimeout),
	}, nil
}

// Run receives and handles messages until ctx ends; then it stops gracefully and returns nil. It
// returns an error where the server refuses at the start what waiting does not cure: the queue does
// not exist, or the login is wrong. Outages are waited for. A consumer runs once at a time.
func (c *Consumer) Run(ctx context.Context) error {
	r := c.newRun(ctx)
	if !c.running.CompareAndSwap(nil, r) {
		return fmt.Errorf("rabbitmqconsumer: consume %s: this consumer runs already", c.queue)
	}
	defer c.running.Store(nil)
	c.log.InfoContext(ctx, "consumer started", "workers", c.config.Workers)
	receiving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	received := make(chan error, 1)
	go func() { received <- r.receive(receiving) }()
	var err error
	select {
	case <-ctx.Done():
		r.Stop(func() {})
		cancel() // only now: until then no other consumer gets what is behind the messages in progress
		err = <-received
	case err = <-received:
		r.Stop(func() {})
	}
	r.letters.close()
	c.log.InfoContext(ctx, "consumer stopped")
	return err
}

// Stats returns the present figures. How far the consumer is behind, its server's monitoring says:
// rabbitmq_queue_messages_ready and rabbitmq_queue_messages_unacked.
func (c *Consumer) Stats() inbox.ConsumerStats {
	if r := c.running.Load(); r != nil {
		return c.counts.Stats(r.Session)
	}
	return c.counts.Stats(nil)
}

// run is one Run of a consumer.
type run struct {
	*Consumer
	*consumer.Session

	letters letterBox
}

func (c *Consumer) newRun(ctx context.Context) *run {
	r := &run{Consumer: c}
	settings := consumer.SettingsOf(&c.config.ConsumerConfig, c.handler, c.log, &c.counts)
	switch {
	case c.to != nil:
		settings.DeadLetter = publishLetter
	case c.config.QueueDeadLetters:
		settings.DeadLetter = rejectLetter
	}
	r.Session = consumer.New(ctx, &settings)
	return r
}
