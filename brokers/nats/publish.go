package nats

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
)

// maxFlightBytes ends the sending of a call until acknowledgments come: a thousand payloads of a
// megabyte must not lie in buffers.
const maxFlightBytes = 8 << 20

// noRetry turns the client's own retries off: one that waits lets the messages behind it overtake.
var noRetry = []jetstream.PublishOpt{jetstream.WithRetryAttempts(0)} //nolint:gochecknoglobals // a constant, which Go has not for slices

// Publish implements [brokers.Broker].
//
// NATS has no bulk: each message is a publish of its own, and what is sent together is what waits
// for acknowledgments at the same time. Messages without a key, and the first of each key, are sent one behind the other without waiting.
// A message with an earlier one of its key in the call is sent when that one was acknowledged.
// Sending it right behind would be faster, and wrong: of two messages on one connection a stream
// may refuse or lose the first and take the second. A full stream that discards new messages may
// have room for a smaller one, or for the next one, since a consumer has acknowledged meanwhile; a
// stream that changes its leader drops what arrives before the new one is there; an overloaded one
// drops what its queue does not hold. No header forbids that: Nats-Expected-Last-Msg-Id and
// Nats-Expected-Last-Sequence speak of the last message of the whole stream, whoever wrote it, and
// the expected sequence of a subject is known only after the acknowledgment.
func (b *Broker) Publish(ctx context.Context, msgs []brokers.Message) []brokers.Result {
	if !b.gate.Enter() {
		return adapter.Closed(msgs)
	}
	defer b.gate.Leave()
	p := &publication{Broker: b, msgs: msgs, lanes: map[string]*lane{}}
	defer p.release()
	p.Begin(msgs, nil)
	p.ready = p.First()
	p.run(ctx)
	return p.Results(ctx)
}

// publication is one call of Publish.
type publication struct {
	*Broker
	adapter.Call

	msgs  []brokers.Message
	lanes map[string]*lane // by destination

	ready   []int    // messages that may be sent
	flights []flight // sent and unanswered, the oldest first
	bytes   int      // of their payloads

	conflicts []flight // sent, and to be sent again: a copy of them is in process

	created map[*lane]error // the result of creating a stream
	silent  map[*lane]error // why no stream answers; nil = there is none
	off     error           // why none does on any lane; nil = not known
}

// A flight is a message that waits for its acknowledgment.
type flight struct {
	i     int
	lane  *lane
	wire  *nats.Msg
	ack   jetstream.PubAckFuture
	again bool  // sent a second time, since its stream was created, or is there
	tries int   // how often a copy was in process
	why   error // the last answer that said so
}

// run sends what may be sent, and waits for the oldest answer where nothing may.
func (p *publication) run(ctx context.Context) {
	for len(p.ready)+len(p.flights)+len(p.conflicts) > 0 {
		if len(p.ready) > 0 && p.mayFly(ctx) {
			i := p.ready[0]
			p.ready = p.ready[1:]
			p.start(ctx, i)
			continue
		}
		if len(p.flights) > 0 {
			f := p.flights[0]
			p.flights = p.flights[1:]
			p.land(ctx, f)
			continue
		}
		if len(p.conflicts) > 0 {
			p.sendAgain(ctx)
		}
	}
}

// mayFly takes a slot for the next message. It waits for one only where this call holds none, whose
// answers would free it: so calls cannot wait for each other in a circle.
func (p *publication) mayFly(ctx context.Context) bool {
	if p.bytes > maxFlightBytes {
		return false
	}
	select {
	case p.slots <- struct{}{}:
		return true
	default:
	}
	if len(p.flights)+len(p.conflicts) > 0 {
		return false
	}
	select {
	case p.slots <- struct{}{}:
		return true
	case <-ctx.Done():
	case <-p.abandoned:
	}
	why := context.Cause(ctx)
	if why == nil {
		why = brokers.ErrClosed
	}
	p.Stop(why)
	p.ready = nil
	return false
}

// start sends a message; the caller has a slot for it.
func (p *publication) start(ctx context.Context, i int) {
	if !p.Admit(ctx, i) {
		<-p.slots
		return
	}
	m := &p.msgs[i]
	l, err := p.lane(m.Destination)
	if err != nil {
		<-p.slots
		p.Fail(i, brokers.Permanent(fmt.Errorf("nats: publish to %q: %w", shortened(m.Destination), err)))
		return
	}
	wire, omitted, err := p.encode(m, l.subject)
	if err != nil {
		<-p.slots
		p.Fail(i, brokers.Permanent(fmt.Errorf("nats: publish to %q: %w", l.subject, err)))
		return
	}
	p.Omit(i, omitted)
	p.send(ctx, flight{i: i, lane: l, wire: wire})
}

// send hands a message to the client.
func (p *publication) send(ctx context.Context, f flight) {
	ack, err := p.js.PublishMsgAsync(f.wire, noRetry...)
	if err != nil {
		<-p.slots
		p.Fail(f.i, p.failed(ctx, f.lane.subject, err))
		return
	}
	f.ack = ack
	p.bytes += len(f.wire.Data)
	p.flights = append(p.flights, f)
}

// land waits for the answer to a message.
func (p *publication) land(ctx context.Context, f flight) {
	ack, err := p.await(ctx, f)
	p.bytes -= len(f.wire.Data)
	if err == nil {
		<-p.slots
		p.Confirm(f.i, ack.Stream+":"+strconv.FormatUint(ack.Sequence, 10))
		if next, ok := p.Next(f.i); ok {
			p.ready = append(p.ready, next)
		}
		return
	}
	if refused := (*jetstream.APIError)(nil); errors.As(err, &refused) && refused.ErrorCode == inProcess && f.tries < mostTries {
		f.tries, f.why = f.tries+1, err
		p.conflicts = append(p.conflicts, f)
		return
	}
	if errors.Is(err, jetstream.ErrNoStreamResponse) && ctx.Err() == nil {
		why, again := p.noResponse(ctx, f.lane), false
		switch {
		case errors.Is(why, errNoLeader): // or a process has created it meanwhile
			again = !f.again
		case why == nil && p.options.streams != nil && !f.again:
			why = p.create(ctx, f.lane)
			again = why == nil
		}
		if again {
			f.again = true
			p.send(ctx, f)
			return
		}
		if why != nil {
			err = why
		}
	}
	<-p.slots
	p.Fail(f.i, p.failed(ctx, f.lane.subject, err))
}

// A message of which a copy is in process is sent again after a pause, which doubles: 2.5 s in all.
const (
	firstPause = 10 * time.Millisecond
	mostTries  = 8
)

// sendAgain sends again all messages of which a copy was in process.
func (p *publication) sendAgain(ctx context.Context) {
	flights := p.conflicts
	p.conflicts = nil
	pause := time.NewTimer(firstPause << (flights[0].tries - 1))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
	case <-p.abandoned:
	}
	for _, f := range flights {
		if p.Obstacle(ctx, f.i) != nil {
			<-p.slots
			p.Fail(f.i, p.failed(ctx, f.lane.subject, f.why))
			continue
		}
		p.send(ctx, f)
	}
}

// noResponse is [Broker.noResponse] of a lane, asked once in a call: many messages may be in
// flight, and an answer that does not come takes seconds. An outage of JetStream is that of all
// lanes.
func (p *publication) noResponse(ctx context.Context, l *lane) error {
	if why, asked := p.silent[l]; asked {
		return why
	}
	if p.silent == nil {
		p.silent = map[*lane]error{}
	}
	why := p.off
	if why == nil {
		why = p.Broker.noResponse(ctx, l.subject)
	}
	if !errors.Is(why, errNoLeader) {
		p.off = why
	}
	p.silent[l] = why
	return why
}

// await waits for one acknowledgment. An answer that is there wins against a context that has ended.
func (p *publication) await(ctx context.Context, f flight) (*jetstream.PubAck, error) {
	confirmed, refused := f.ack.Ok(), f.ack.Err()
	select {
	case ack := <-confirmed:
		return ack, nil
	case err := <-refused:
		return nil, p.refusal(err)
	default:
	}
	select {
	case ack := <-confirmed:
		return ack, nil
	case err := <-refused:
		return nil, p.refusal(err)
	case <-f.lane.denied:
		return nil, errDenied
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", errNoAck, ctx.Err())
	case <-p.abandoned:
		return nil, nats.ErrConnectionClosed
	}
}

func (p *publication) refusal(err error) error {
	if errors.Is(err, jetstream.ErrAsyncPublishTimeout) {
		return fmt.Errorf("%w within %v: %w", errNoAck, p.options.timeout, err)
	}
	return err
}

// create creates the stream of a lane, once in a call. That another process has just done so, with
// other settings or for more subjects, is as good.
func (p *publication) create(ctx context.Context, l *lane) error {
	if err, done := p.created[l]; done {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	_, err := p.js.CreateStream(ctx, p.options.stream(l.subject))
	var refused *jetstream.APIError
	switch {
	case err == nil:
	case errors.As(err, &refused) && (refused.ErrorCode == streamExists || refused.ErrorCode == subjectsOverlap):
		err = nil
	case errors.As(err, &refused):
		err = fmt.Errorf("%w: create a stream: %w", errNotCreated, err)
	default: // a server is silent towards a user who may not create streams
		err = fmt.Errorf("%w: %w: the user needs to publish to $JS.API.STREAM.CREATE.%s", errNotCreated, err, streamName(l.subject))
	}
	if p.created == nil {
		p.created = map[*lane]error{}
	}
	p.created[l] = err
	return err
}

// Error codes of JetStream that say that there is a stream already.
const (
	streamExists    = 10058
	subjectsOverlap = 10065
)

// lane returns the lane of a destination.
func (p *publication) lane(destination string) (*lane, error) {
	if l := p.lanes[destination]; l != nil {
		return l, nil
	}
	subject, err := subjectOf(p.options.prefix, destination)
	if err != nil {
		return nil, err
	}
	l := p.enter(subject)
	p.lanes[destination] = l
	return l, nil
}

func (p *publication) release() {
	for _, l := range p.lanes {
		p.leave(l)
	}
}
