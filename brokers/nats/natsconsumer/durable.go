package natsconsumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gorm-fanout/fanout/inbox/consumer"
)

// leastAckWait bounds how often messages are renewed: steps of BackOff may be 0.
const leastAckWait = 100 * time.Millisecond

// terms are what the durable consumer said of itself last: it may be changed at any time.
type terms struct {
	ackWait time.Duration // after which what is not renewed is delivered to others
	due     time.Duration // after which it is at the latest
	few     int           // messages that a fetch asks for at most
	wait    time.Duration // of a fetch at most
}

func (r *run) terms() *terms { return r.latest.Load() }

// note notes the terms of the durable consumer. One that was made anew may be that of another stream, in
// which what was claimed is not: nothing is said of that any more. Its handlers go on.
func (r *run) note(info *jetstream.ConsumerInfo) {
	r.mu.Lock()
	if !r.created.IsZero() && !r.created.Equal(info.Created) {
		r.epoch.Add(1)
	}
	r.created = info.Created
	r.mu.Unlock()
	config := &info.Config
	steps := append([]time.Duration{config.AckWait}, config.BackOff...)
	t := &terms{
		ackWait: max(slices.Min(steps), leastAckWait), due: max(slices.Max(steps), leastAckWait),
		few: max(r.config.MaxOutstandingMessages/4, 1), wait: r.config.pace.fetch,
	}
	if config.MaxRequestBatch > 0 {
		t.few = min(t.few, config.MaxRequestBatch)
	}
	if config.MaxRequestExpires > 0 {
		t.wait = min(t.wait, config.MaxRequestExpires)
	}
	r.latest.Store(t)
}

// find waits until the server answers, and looks at the durable consumer.
func (r *run) find(ctx context.Context) error {
	for {
		final, err := r.look(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // that is what it was told
		case err == nil:
			r.outage.Over(ctx)
			return nil
		case final != "":
			return fmt.Errorf("natsconsumer: consume %s: %w: %s", r.stream, err, final)
		}
		if !consumer.Pause(ctx, r.outage.Failed(ctx, err)) {
			return nil
		}
	}
}

// look gets the durable consumer, and advice where waiting does not help.
func (r *run) look(ctx context.Context) (advice string, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.config.pace.answer)
	defer cancel()
	pull, err := r.js.Consumer(ctx, r.stream, r.durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) && r.config.Create != nil {
		config := *r.config.Create
		config.Name, config.Durable, config.AckPolicy = r.durable, r.durable, jetstream.AckExplicitPolicy
		if pull, err = r.js.CreateConsumer(ctx, r.stream, config); errors.Is(err, jetstream.ErrConsumerExists) { // another process was first
			pull, err = r.js.Consumer(ctx, r.stream, r.durable)
		}
	}
	var refused *jetstream.APIError
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return "create the stream, or check its name", err
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		return "create the durable consumer " + r.durable + ", let it be created (Create), or check its name", err
	case errors.Is(err, jetstream.ErrNotPullConsumer):
		return "it delivers to a subject: make one without a deliver subject", err
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return "enable JetStream for the server and the account", err
	case errors.As(err, &refused) && r.config.Create != nil && refused.Code == 400:
		return "check Create, and what the stream allows", err
	case r.conn.IsClosed():
		return "the connection is closed: give it nats.MaxReconnects(-1)", nats.ErrConnectionClosed
	case err != nil:
		return "", err
	}
	return r.adopt(ctx, pull)
}

// adopt notes what the durable consumer says of itself.
func (r *run) adopt(ctx context.Context, pull jetstream.Consumer) (advice string, err error) {
	config := pull.CachedInfo().Config
	if config.AckPolicy != jetstream.AckExplicitPolicy {
		return "make one whose AckPolicy is explicit", fmt.Errorf("the durable consumer %s does not want each message confirmed (AckPolicy %s)", r.durable, config.AckPolicy)
	}
	if config.MaxDeliver > 0 {
		r.log.WarnContext(ctx, "deliveries limited by the durable consumer", "max_deliver", config.MaxDeliver)
	}
	r.pull = pull
	r.note(pull.CachedInfo())
	return "", nil
}

func (r *run) info(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, r.config.pace.answer)
	defer cancel()
	durable, err := r.js.Consumer(ctx, r.stream, r.durable) // whose Info is not for several callers at a time
	if err != nil {
		return nil, err
	}
	info := durable.CachedInfo()
	r.note(info)
	return info, nil
}

// watch looks at the durable consumer now and then: a fetch does not say that the server is out, nor that
// the durable has been changed.
func (r *run) watch(ctx context.Context) {
	for consumer.Pause(ctx, r.config.pace.probe) {
		switch _, err := r.info(ctx); {
		case ctx.Err() != nil:
			return
		case r.conn.IsClosed():
			r.quit(nats.ErrConnectionClosed)
			return
		case err != nil:
			r.outage.Failed(ctx, err)
		default:
			r.outage.Over(ctx)
		}
	}
}
