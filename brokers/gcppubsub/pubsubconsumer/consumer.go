package pubsubconsumer

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/pubsub/v2"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumer"
)

// A Consumer hands the messages of one subscription to a handler. Make one with [NewConsumer]. Its
// methods are safe for concurrent use.
type Consumer struct {
	client       *pubsub.Client
	subscription string // in full
	config       Config
	letters      string // the topic of dead letters in full; empty for none
	handler      inbox.Handler
	log          *slog.Logger
	pace         pace
	counts       consumer.Counts
	running      atomic.Pointer[run]
}

// pace is how often things that are not settings happen; tests have another one.
type pace struct {
	tick  time.Duration // between looks at what has waited too long
	probe time.Duration // between looks at the subscription, where nothing arrives
	gap   time.Duration // how long what was given back is waited for; what is on its way meanwhile takes no longer
	grace time.Duration // for what has to end after the shutdown timeout
	again inbox.Retry   // pauses between attempts to receive
}

func usual() pace {
	return pace{
		tick: time.Second, probe: 15 * time.Second, gap: 2 * time.Second, grace: 10 * time.Second,
		again: inbox.Retry{BaseDelay: 250 * time.Millisecond, MaxDelay: 15 * time.Second},
	}
}

// NewConsumer returns a consumer of a subscription, given by its id or in full
// ("projects/P/subscriptions/S"). The client stays the caller's, who closes it after [Consumer.Run]
// has ended. Its error names all that is wrong; nothing is sent yet.
//
// During an outage Google's client waits longer and longer before it tries again, up to a minute,
// and cannot be woken. One made by pubsub.NewClientWithConfig with a shorter backoff for
// StreamingPull in SubscriptionAdminCallOptions is back sooner.
func NewConsumer(client *pubsub.Client, subscription string, handler inbox.Handler, config Config) (*Consumer, error) {
	project := "unknown"
	if client != nil {
		project = client.Project()
	}
	subscription = fullName(project, "subscriptions", subscription)
	letters, wrong := config.complete(project, subscription, handler)
	wrong.If(client == nil, "the client is nil: make one with pubsub.NewClient")
	if err := wrong.Err(); err != nil {
		return nil, err
	}
	return &Consumer{
		client: client, subscription: subscription, config: config, letters: letters, handler: handler, pace: usual(),
		log: config.Log.With("subscription", subscription, "consumer", config.Consumer),
	}, nil
}

// Run receives and handles messages until ctx ends; then it stops gracefully and returns nil. It
// returns an error as soon as it cannot go on: the subscription does not exist, the credentials may
// not consume it, or the client was closed. Outages are waited for. A consumer runs once at a time.
func (c *Consumer) Run(ctx context.Context) error {
	r := c.newRun(ctx)
	if !c.running.CompareAndSwap(nil, r) {
		return fmt.Errorf("pubsubconsumer: consume %s: this consumer runs already", c.subscription)
	}
	defer c.running.Store(nil)

	c.log.InfoContext(ctx, "consumer started", "workers", c.config.Workers)
	receiving, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	var background sync.WaitGroup
	background.Go(func() { r.KeepTime(receiving) })
	background.Go(func() { r.watch(receiving, cancel) })
	received := make(chan error, 1)
	go func() { received <- r.receive(receiving) }()

	var err error
	ended := false
	select {
	case <-ctx.Done():
	case <-receiving.Done(): // its cause says why
	case err = <-received:
		ended = true
	}
	r.Stop(func() { cancel(nil) })
	background.Wait()
	if !ended {
		err = r.drained(ctx, received)
	}
	r.results.Wait()
	c.log.InfoContext(ctx, "consumer stopped")
	return err
}

// drained waits for Google's client to send the last confirmations. It would go on for minutes
// where the server is out.
func (r *run) drained(ctx context.Context, received <-chan error) error {
	timer := time.NewTimer(r.pace.grace)
	defer timer.Stop()
	select {
	case err := <-received:
		return err
	case <-timer.C:
		r.log.WarnContext(ctx, "last confirmations not answered", "waited", r.pace.grace)
		return nil
	}
}

// Stats returns the present figures. How far the consumer is behind is a metric of Google Cloud:
// pubsub.googleapis.com/subscription/oldest_unacked_message_age (seconds), beside
// num_undelivered_messages.
func (c *Consumer) Stats() inbox.ConsumerStats {
	if r := c.running.Load(); r != nil {
		return c.counts.Stats(r.Session)
	}
	return c.counts.Stats(nil)
}
