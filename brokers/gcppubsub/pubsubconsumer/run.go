package pubsubconsumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/pubsub/v2"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumer"
)

// A run is one Run of a consumer.
type run struct {
	*Consumer
	*consumer.Session

	arrived atomic.Int64 // messages that have arrived at all
	// unordered is set where message ordering is known not to be enabled.
	unordered atomic.Bool
	results   sync.WaitGroup // of confirmations that are looked at
}

func (c *Consumer) newRun(ctx context.Context) *run {
	o := &c.config
	r := &run{Consumer: c}
	settings := consumer.SettingsOf(&o.ConsumerConfig, c.handler, c.log, &c.counts)
	settings.MaxMessages, settings.MaxBytes, settings.Recurs = o.MaxOutstandingMessages, o.MaxOutstandingBytes, true
	settings.GiveBack, settings.Tick, settings.Grace = true, c.pace.tick, c.pace.grace
	// There is a dead letter policy: only then Pub/Sub counts.
	settings.HandBack = func(e *consumer.Entry) bool { return e.Message.Deliveries > 0 }
	if c.letters != "" {
		settings.DeadLetter = c.deadLetter
	}
	r.Session = consumer.New(ctx, &settings)
	return r
}

// arrive claims a delivery. Google's client calls it for the messages of one ordering key one after
// the other.
func (r *run) arrive(ctx context.Context, m *pubsub.Message) {
	r.arrived.Add(1)
	o := &r.config
	e := &consumer.Entry{
		ID: m.ID, Bytes: len(m.Data) + consumer.AttributesBytes(m.Attributes), Expire: time.Now().Add(o.MaxExtension),
	}
	if m.OrderingKey != "" && !r.unordered.Load() {
		e.Ordered, e.Gap = true, r.pace.gap
	}
	message, broken := consumer.Read(&o.ConsumerConfig, &inbox.RawMessage{
		Payload: m.Data, Attributes: m.Attributes, OrderingKey: cmp.Or(m.OrderingKey, m.Attributes[inbox.FieldOrderingKey]),
		Source: o.Source(r.subscription), Position: m.ID, Published: m.PublishTime,
	}, m.ID)
	if m.DeliveryAttempt != nil {
		message.Deliveries = *m.DeliveryAttempt
		e.Past.Failures = max(message.Deliveries-1, 0)
	}
	e.Message, e.Broken = message, broken
	m.Data, m.Attributes = nil, nil // which the message has, and copies of one that is claimed need not
	r.Arrive(ctx, e, &delivery{run: r, message: m})
}

// delivery is what Google's client has handed out.
type delivery struct {
	run     *run
	message *pubsub.Message
}

// Ack implements [consumer.Delivery].
func (d *delivery) Ack() { d.watch("ack", d.message.AckWithResult()) }

// Nack implements [consumer.Delivery].
func (d *delivery) Nack() { d.watch("nack", d.message.NackWithResult()) }

// watch sees to it that a confirmation, or a return, that failed is known. Google's client tells of
// it for subscriptions with exactly-once delivery.
func (d *delivery) watch(what string, result *pubsub.AckResult) {
	select {
	case <-result.Ready():
		d.judge(what, result)
	default:
		d.run.results.Go(func() {
			if consumer.Within(result.Ready(), d.run.pace.grace) {
				d.judge(what, result)
			} else {
				d.run.AckFailed(what, d.message.ID, errors.New("not answered in time"))
			}
		})
	}
}

// judge looks at a result that is there.
func (d *delivery) judge(what string, result *pubsub.AckResult) {
	if status, err := result.Get(d.run.Context()); err != nil || status != pubsub.AcknowledgeStatusSuccess {
		d.run.AckFailed(what, d.message.ID, fmt.Errorf("status %d: %w", status, err))
	}
}
