package natsconsumer

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumer"
)

// closing bounds the wait for the server to note the last confirmations and returned messages.
const closing = 5 * time.Second

// run is one Run of a consumer.
type run struct {
	*Consumer
	*consumer.Session

	pull   jetstream.Consumer
	latest atomic.Pointer[terms]
	outage consumer.Outage
	order  order
	quit   context.CancelCauseFunc // ends what receives

	mu       sync.Mutex
	stopping bool                 // what is given back is kept until nothing is in progress any more
	back     map[uint64]*delivery // what is to be given back at the end, by the place in the stream

	created time.Time    // when the durable was, under mu
	epoch   atomic.Int64 // of what is claimed: what was before belongs to others, or to a stream that is gone

	background sync.WaitGroup
	life       context.Context //nolint:containedctx // of what goes on in the background
	over       context.CancelFunc
}

func (c *Consumer) newRun(ctx context.Context) *run {
	r := &run{Consumer: c, outage: consumer.Outage{Log: c.log}, order: order{kept: c.config.Exclusive, doubtful: c.config.Exclusive}, back: map[uint64]*delivery{}}
	r.life, r.over = context.WithCancel(context.WithoutCancel(ctx))
	o := &c.config
	settings := consumer.SettingsOf(&o.ConsumerConfig, c.handler, c.log, &c.counts)
	settings.MaxMessages, settings.MaxBytes, settings.Recurs = o.MaxOutstandingMessages, o.MaxOutstandingBytes, true
	settings.GiveBack, settings.Tick, settings.LatestConfirms = !o.Exclusive, o.pace.tick, true // the server knows messages by their places
	if c.letters != "" {
		settings.DeadLetter = r.deadLetter
	}
	r.Session = consumer.New(ctx, &settings)
	return r
}

// receive consumes until ctx ends or it cannot continue.
func (r *run) receive(ctx context.Context) error {
	if err := r.find(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	ctx, r.quit = context.WithCancelCause(ctx)
	defer r.quit(nil)
	r.background.Go(func() { r.KeepTime(r.life) })
	r.background.Go(func() { r.renew(r.life) })
	r.background.Go(func() { r.watch(r.life) })
	arriving, refuse := context.WithCancel(context.WithoutCancel(ctx))
	defer refuse()
	defer context.AfterFunc(ctx, func() {
		r.stop()
		time.AfterFunc(r.config.pace.fetch, refuse) // messages for whose bytes there is no room
	})()
	for r.Room(ctx, r.terms().few) {
		if r.order.doubtful {
			r.settle(ctx, arriving)
			continue
		}
		err := r.fetch(r.terms().few, r.terms().wait, func(m jetstream.Msg, meta *jetstream.MsgMetadata) {
			if r.order.follows(meta) {
				r.arrive(arriving, m, meta)
			}
		})
		if err != nil {
			r.failed(ctx, err)
		}
	}
	if errors.Is(context.Cause(ctx), nats.ErrConnectionClosed) {
		return fmt.Errorf("natsconsumer: consume %s: the connection was closed before the consumer had stopped: close it after Run has returned, and "+
			"give it nats.MaxReconnects(-1)", r.stream)
	}
	return nil
}

// failed waits before the next attempt, no longer than a question that gets no answer would. It ends what
// receives where the caller, or the last attempt to reconnect, has closed the connection.
func (r *run) failed(ctx context.Context, err error) {
	if r.conn.IsClosed() {
		r.quit(nats.ErrConnectionClosed)
	}
	consumer.Pause(ctx, min(r.outage.Failed(ctx, err), r.config.pace.fetch))
}

// fetch asks for what there is, n messages at most, and waits for it. Without a connection it does not
// ask: the client would keep a subscription for each question that cannot be sent.
func (r *run) fetch(n int, wait time.Duration, take func(m jetstream.Msg, meta *jetstream.MsgMetadata)) error {
	if !r.conn.IsConnected() {
		return nats.ErrDisconnected
	}
	batch, err := r.pull.Fetch(n, jetstream.FetchMaxWait(wait))
	if err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	for m := range batch.Messages() {
		meta, err := m.Metadata()
		if err != nil { // it is none of JetStream's
			r.log.WarnContext(r.life, "message without a place in the stream", "subject", m.Subject(), "error", err)
			continue
		}
		if meta.Sequence.Consumer <= r.order.number { // of a durable that was made anew, and perhaps of another stream
			_, _ = r.info(r.life) // which looks; else watch does
		}
		take(m, meta)
	}
	switch err := batch.Error(); {
	case err == nil, errors.Is(err, nats.ErrTimeout):
		return nil
	default:
		return fmt.Errorf("fetch: %w", err)
	}
}

// arrive claims a message.
func (r *run) arrive(ctx context.Context, m jetstream.Msg, meta *jetstream.MsgMetadata) {
	position := strconv.FormatUint(meta.Sequence.Stream, 10)
	attributes := attributesOf(m)
	o := &r.config
	message, broken := consumer.Read(&o.ConsumerConfig, &inbox.RawMessage{
		Payload: m.Data(), Attributes: attributes, OrderingKey: attributes[inbox.FieldOrderingKey],
		Source: o.Source(r.stream), Position: position, Published: meta.Timestamp,
	}, position)
	message.Deliveries = int(min(meta.NumDelivered, 1<<30))
	r.Arrive(ctx, &consumer.Entry{
		ID:    idOf(meta),
		Bytes: sizeOf(m), Message: message, Broken: broken, Gap: o.pace.gap + 2*r.terms().ackWait, // one that was lost comes AckWait later
	}, &delivery{run: r, message: m, sequence: meta.Sequence.Stream, epoch: r.epoch.Load()})
}

// sizeOf is what a message takes: a foreign sender may put it all into the headers.
func sizeOf(m jetstream.Msg) int {
	n := len(m.Data())
	for name, values := range m.Headers() {
		for _, value := range values {
			n += consumer.HeaderBytes + len(name) + len(value)
		}
	}
	return n
}

// attributesOf are the headers, the first value of each. An ordering key may be escaped, as headers
// take no line ends; see brokers/nats.
func attributesOf(m jetstream.Msg) map[string]string {
	attributes := make(map[string]string, len(m.Headers()))
	for name, values := range m.Headers() {
		if len(values) > 0 {
			attributes[name] = values[0]
		}
	}
	if key, err := url.PathUnescape(attributes[inbox.FieldOrderingKey]); err == nil && key != "" {
		attributes[inbox.FieldOrderingKey] = key
	}
	return attributes
}

// idOf tells messages apart, also of a stream that was made anew and counts from 1 again.
func idOf(meta *jetstream.MsgMetadata) string {
	return strconv.FormatUint(meta.Sequence.Stream, 10) + " " + strconv.FormatInt(meta.Timestamp.UnixNano(), 10)
}
