package natsconsumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/internal/session"
)

const (
	// fetchWait is how long a fetch waits for messages. A stop waits for it: what is on its way to a
	// fetch that is cut off would come again after AckWait alone, behind what is given back.
	fetchWait = time.Second
	// closing bounds the wait for what was confirmed and given back last to be noted.
	closing = 5 * time.Second
	// renewals within AckWait: one may fail.
	renewals = 3
	// answerTimeout bounds a question to the server.
	answerTimeout = 5 * time.Second
)

// run is one Run of a consumer.
type run struct {
	*Consumer
	*session.Session

	pull    jetstream.Consumer
	ackWait time.Duration
	due     time.Duration // when what was delivered and not confirmed is delivered again at the latest
	few     int           // messages that a fetch asks for at most
	wait    time.Duration // of a fetch at most
	outage  session.Outage
	order   order

	mu       sync.Mutex
	stopping bool              // what is given back is kept until nothing is under way any more
	back     map[uint64]string // what is to be given back at the end, and where to, by the place in the stream

	lapsing    atomic.Bool // what is given back is not the server's to know of
	background sync.WaitGroup
	life       context.Context //nolint:containedctx // of what goes on in the background
	over       context.CancelFunc
}

func (c *Consumer) newRun(ctx context.Context) *run {
	r := &run{Consumer: c, outage: session.Outage{Log: c.log}, order: order{kept: c.options.sole, doubtful: c.options.sole}, back: map[uint64]string{}}
	r.life, r.over = context.WithCancel(context.WithoutCancel(ctx))
	o := &c.options
	settings := o.Settings(c.handler, c.log, &c.counts)
	settings.MaxMessages, settings.MaxBytes, settings.Recurs = o.maxMessages, o.maxBytes, true
	settings.GiveBack, settings.Tick = !o.sole, o.pace.tick
	if o.letters != "" {
		settings.DeadLetter = r.deadLetter
	}
	r.Session = session.New(ctx, &settings)
	return r
}

// stop begins to keep what is given back.
func (r *run) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping = true
}

// keep keeps what is given back during a stop, and is false before.
func (r *run) keep(d *delivery) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping {
		r.back[d.sequence] = d.message.Reply()
	}
	return r.stopping
}

// end gives back what was kept, ends what goes on in the background, and waits until the server has
// noted all of it.
func (r *run) end() {
	if err := r.giveBack(); err != nil {
		r.log.WarnContext(r.life, "last confirmations not answered", "waited", closing, "error", err)
	}
	r.over()
	r.background.Wait()
}

// giveBack gives back what was kept. The server redelivers in the order in which it was told, and before
// anything new: so it is told all at once, in the order of the stream, when no fetch of ours is left
// that could get it. It answers the last one when it has noted those before it.
func (r *run) giveBack() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.back) == 0 {
		return r.conn.FlushTimeout(closing)
	}
	if !r.conn.IsConnected() { // see Nack
		return nats.ErrDisconnected
	}
	sequences := slices.Sorted(maps.Keys(r.back))
	last := len(sequences) - 1
	for _, sequence := range sequences[:last] {
		if err := r.conn.Publish(r.back[sequence], []byte("-NAK")); err != nil {
			return err
		}
	}
	_, err := r.conn.Request(r.back[sequences[last]], []byte("-NAK"), closing)
	return err
}

// receive consumes until ctx ends or there is no going on.
func (r *run) receive(ctx context.Context) error {
	if err := r.find(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	r.background.Go(func() { r.KeepTime(r.life) })
	r.background.Go(func() { r.renew(r.life) })
	r.background.Go(func() { r.watch(r.life, end) })
	arriving, refuse := context.WithCancel(context.WithoutCancel(ctx))
	defer refuse()
	defer context.AfterFunc(ctx, func() {
		r.stop()
		time.AfterFunc(r.wait, refuse) // messages for whose bytes there is no room
	})()
	for r.Room(ctx, r.few) {
		if r.order.doubtful {
			r.settle(ctx, arriving)
			continue
		}
		err := r.fetch(r.few, func(m jetstream.Msg) {
			if r.order.follows(m) {
				r.arrive(arriving, m)
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

// failed waits before the next attempt, no longer than a question that gets no answer would.
func (r *run) failed(ctx context.Context, err error) {
	session.Pause(ctx, min(r.outage.Failed(ctx, err), fetchWait))
}

// fetch asks for what there is, n messages at most, and waits for it. Without a connection it does not
// ask: the client would keep a subscription for each question that cannot be sent.
func (r *run) fetch(n int, take func(m jetstream.Msg)) error {
	if !r.conn.IsConnected() {
		return nats.ErrDisconnected
	}
	batch, err := r.pull.Fetch(n, jetstream.FetchMaxWait(r.wait))
	if err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	for m := range batch.Messages() {
		take(m)
	}
	switch err := batch.Error(); {
	case err == nil, errors.Is(err, nats.ErrTimeout):
		return nil
	default:
		return fmt.Errorf("fetch: %w", err)
	}
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
		if !session.Pause(ctx, r.outage.Failed(ctx, err)) {
			return nil
		}
	}
}

// look gets the durable consumer, and advice where waiting does not help.
func (r *run) look(ctx context.Context) (advice string, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	pull, err := r.js.Consumer(ctx, r.stream, r.durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) && r.options.create != nil {
		config := *r.options.create
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
		return "create the durable consumer " + r.durable + ", let it be created (WithCreate), or check its name", err
	case errors.Is(err, jetstream.ErrNotPullConsumer):
		return "it delivers to a subject: make one without a deliver subject", err
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return "enable JetStream for the server and the account", err
	case errors.As(err, &refused) && r.options.create != nil && refused.Code == 400:
		return "check the configuration of WithCreate", err
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
	steps := append([]time.Duration{config.AckWait}, config.BackOff...)
	r.pull, r.ackWait, r.due = pull, slices.Min(steps), slices.Max(steps)
	r.few, r.wait = max(r.options.maxMessages/4, 1), fetchWait
	if config.MaxRequestBatch > 0 {
		r.few = min(r.few, config.MaxRequestBatch)
	}
	if config.MaxRequestExpires > 0 {
		r.wait = min(r.wait, config.MaxRequestExpires)
	}
	return "", nil
}

func (r *run) info(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	durable, err := r.js.Consumer(ctx, r.stream, r.durable) // whose Info is not for several callers at a time
	if err != nil {
		return nil, err
	}
	return durable.CachedInfo(), nil
}

// watch looks at the durable consumer now and then: a fetch does not say that the server is out. It ends
// what receives when the caller, or the last attempt to reconnect, has closed the connection.
func (r *run) watch(ctx context.Context, end context.CancelCauseFunc) {
	for session.Pause(ctx, r.options.pace.probe) {
		switch _, err := r.info(ctx); {
		case ctx.Err() != nil:
			return
		case r.conn.IsClosed():
			end(nats.ErrConnectionClosed)
			return
		case err != nil:
			r.outage.Failed(ctx, err)
		default:
			r.outage.Over(ctx)
		}
	}
}

// renew tells the server that what is claimed is worked on. Where that was not told for AckWait, as the
// server could not be reached or this process was frozen, the messages are others' by now.
func (r *run) renew(ctx context.Context) {
	told := time.Now()
	lapse := func() {
		if time.Since(told) >= r.ackWait {
			told = time.Now()
			r.lapse(ctx)
		}
	}
	for session.Pause(ctx, min(r.ackWait/renewals, time.Until(told.Add(r.ackWait)))) {
		lapse()
		began := time.Now()
		for _, d := range r.Claimed() {
			_ = d.(*delivery).message.InProgress() //nolint:forcetypeassert // the only kind there is; the flush says whether it arrived
		}
		if r.conn.FlushTimeout(min(r.ackWait/renewals, closing)) == nil {
			told = began
		}
		lapse()
	}
}

// lapse gives up all that is claimed, and the contexts of its handlers end. Nothing is said to the server,
// which would take it away from those who have it now. What a sole consumer has claimed comes to nobody
// but to it, as copies: it goes on.
func (r *run) lapse(ctx context.Context) {
	if r.options.sole {
		return
	}
	r.lapsing.Store(true)
	defer r.lapsing.Store(false)
	over, cancel := context.WithCancel(ctx)
	cancel()
	r.Withdraw(over, func(*session.Entry) bool { return true })
}

// arrive claims a message.
func (r *run) arrive(ctx context.Context, m jetstream.Msg) {
	meta, err := m.Metadata()
	if err != nil { // it is none of JetStream's
		r.log.WarnContext(ctx, "message without a place in the stream", "subject", m.Subject(), "error", err)
		return
	}
	position := strconv.FormatUint(meta.Sequence.Stream, 10)
	message, broken := session.Decode(m.Data(), attributesOf(m), r.stream, position)
	o := &r.options
	message.Consumer, message.Source, message.Position, message.Published = o.Consumer, o.Source, position, meta.Timestamp
	message.Deliveries = int(min(meta.NumDelivered, 1<<30))
	r.Arrive(ctx, &session.Entry{
		ID:    idOf(meta),
		Bytes: sizeOf(m), Message: message, Broken: broken, Gap: o.pace.gap + 2*r.ackWait, // one that was lost comes AckWait later
	}, &delivery{run: r, message: m, sequence: meta.Sequence.Stream})
}

// sizeOf is what a message takes: a foreign sender may put it all into the headers.
func sizeOf(m jetstream.Msg) int {
	n := len(m.Data())
	for name, values := range m.Headers() {
		for _, value := range values {
			n += len(name) + len(value)
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

// delivery implements [session.Delivery].
type delivery struct {
	run      *run
	message  jetstream.Msg
	sequence uint64 // in the stream
}

// Ack implements [session.Delivery].
func (d *delivery) Ack() { d.note("ack", d.message.Ack()) }

// Nack implements [session.Delivery]. What is given back to make room comes again later: what it made
// room for comes first. The server redelivers in the order of the stream what comes due together.
func (d *delivery) Nack() {
	// What is said without a connection arrives when the message may be another's: it comes again anyway.
	if !d.run.keep(d) && !d.run.lapsing.Load() && d.run.conn.IsConnected() {
		d.note("nak", d.message.NakWithDelay(d.run.options.pace.away))
	}
}

func (d *delivery) note(what string, err error) {
	if err != nil {
		d.run.AckFailed(what, strconv.FormatUint(d.sequence, 10), err)
	}
}

// idOf tells messages apart, also of a stream that was made anew and counts from 1 again.
func idOf(meta *jetstream.MsgMetadata) string {
	return strconv.FormatUint(meta.Sequence.Stream, 10) + " " + strconv.FormatInt(meta.Timestamp.UnixNano(), 10)
}
