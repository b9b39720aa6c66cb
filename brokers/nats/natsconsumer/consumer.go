package natsconsumer

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumer"
)

// A Consumer hands the messages of one durable consumer of JetStream to a handler. Make one with
// [NewConsumer]. Its methods are safe for concurrent use.
type Consumer struct {
	conn            *nats.Conn
	js              jetstream.JetStream
	stream, durable string
	config          Config
	letters         string // the subject of dead letters; empty for none
	handler         inbox.Handler
	log             *slog.Logger
	counts          consumer.Counts
	running         atomic.Pointer[run]
}

// NewConsumer returns a consumer of a durable pull consumer of a stream. The connection stays the
// caller's, who closes it after [Consumer.Run] has ended; give it nats.MaxReconnects(-1), as a closed
// connection ends Run, and nats.RetryOnFailedConnect(true), so that a start waits for the server. Its
// error names all that is wrong; nothing is sent yet.
func NewConsumer(conn *nats.Conn, stream, durable string, handler inbox.Handler, config Config) (*Consumer, error) {
	letters, wrong := config.complete(stream, durable, handler)
	wrong.If(conn == nil, "the connection is nil: make one with nats.Connect")
	if err := wrong.Err(); err != nil {
		return nil, err
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, fmt.Errorf("natsconsumer: %w", err)
	}
	return &Consumer{
		conn: conn, js: js, stream: stream, durable: durable, config: config, letters: letters, handler: handler,
		log: config.Log.With("stream", stream, "consumer", config.Consumer),
	}, nil
}

// Run receives and handles messages until ctx ends; then it stops gracefully and returns nil. It
// returns an error where the server says at the start what waiting does not cure: the stream or the
// durable consumer does not exist, or is no pull consumer with explicit acks; and when the connection
// was closed. Outages are waited for. A consumer runs once at a time.
func (c *Consumer) Run(ctx context.Context) error {
	r := c.newRun(ctx)
	if !c.running.CompareAndSwap(nil, r) {
		return fmt.Errorf("natsconsumer: consume %s: this consumer runs already", c.stream)
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
		cancel()
		err = <-received
	case err = <-received:
	}
	r.stop()
	r.Stop(func() {})
	r.end()
	c.log.InfoContext(ctx, "consumer stopped")
	return err
}

// Stats returns the present figures. How far the consumer is behind, its server says: num_pending and
// num_ack_pending of the durable consumer (nats consumer info).
func (c *Consumer) Stats() inbox.ConsumerStats {
	if r := c.running.Load(); r != nil {
		return c.counts.Stats(r.Session)
	}
	return c.counts.Stats(nil)
}
