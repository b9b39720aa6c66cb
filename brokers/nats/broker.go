package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
)

const (
	// preferredBatch is what a processor hands over at once; beyond it only the latency grows.
	preferredBatch = 500
	// pingTimeout bounds questions whose context has no deadline.
	pingTimeout = 5 * time.Second
)

// Broker publishes to NATS JetStream. Make one with [Open]. All methods are safe for concurrent
// use.
type Broker struct {
	options options
	conn    *nats.Conn
	js      jetstream.JetStream
	gate    *adapter.Gate
	slots   chan struct{} // one for each message that waits for its acknowledgment
	trouble atomic.Pointer[error]
	// abandoned is closed when Close did not wait any longer.
	abandoned chan struct{}

	mu    sync.Mutex
	lanes map[string]*lane
}

// A lane is one subject, as long as a call of Publish uses it.
type lane struct {
	subject string
	users   int
	denied  chan struct{} // closed when the server has denied a publish to the subject
}

// enter returns the lane of a subject, which leave gives back.
func (b *Broker) enter(subject string) *lane {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.lanes[subject]
	if l == nil {
		l = &lane{subject: subject, denied: make(chan struct{})}
		b.lanes[subject] = l
	}
	l.users++
	return l
}

func (b *Broker) leave(l *lane) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.users--; l.users == 0 && b.lanes[l.subject] == l {
		delete(b.lanes, l.subject)
	}
}

// asyncError takes what the server says outside of an answer. A publish that a user may not make is
// dropped by the server: this is all that is ever heard of it.
func (b *Broker) asyncError(err error) {
	b.note(err)
	subject, found := deniedSubject(err)
	if !found {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.lanes[subject]; l != nil {
		close(l.denied)
		delete(b.lanes, subject) // the next call asks again
	}
}

// note keeps what explains an outage. That no server could be connected to does not: each attempt has
// its own error.
func (b *Broker) note(err error) {
	if err != nil && !errors.Is(err, nats.ErrNoServers) {
		b.trouble.Store(&err)
	}
}

// Capabilities implements [brokers.Broker].
func (b *Broker) Capabilities() brokers.Capabilities {
	return brokers.Capabilities{Ordering: true, MaxMessageBytes: b.options.maxPayload - maxHeaderBytes, MaxBatch: preferredBatch, KeysInTurn: true}
}

// Ping implements [brokers.Broker]. It asks the server that the broker is connected to, and its
// JetStream where the user may.
func (b *Broker) Ping(ctx context.Context) error {
	if !b.gate.Enter() {
		return brokers.ErrClosed
	}
	defer b.gate.Leave()
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	err := ctx.Err()
	switch {
	case err != nil:
	case !b.settled(ctx):
		err = nats.ErrDisconnected
	default:
		if err = b.conn.FlushWithContext(ctx); err == nil {
			err = b.outage(ctx)
		}
		if refused := (*jetstream.APIError)(nil); errors.As(err, &refused) {
			err = fmt.Errorf("%w: %s", err, cmp.Or(rules[refused.ErrorCode].advice, "see the server's log"))
		}
	}
	if err != nil {
		return brokers.Unavailable(brokers.ScopeBroker, fmt.Errorf("nats: ping: %w", b.explained(err)))
	}
	return nil
}

// settled reports whether the broker is connected. Just after it was opened the client may be trying
// still, and what keeps it from connecting is not known yet.
func (b *Broker) settled(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	look := time.NewTicker(minReconnectDelay)
	defer look.Stop()
	for !b.conn.IsConnected() && b.trouble.Load() == nil {
		select {
		case <-ctx.Done():
			return b.conn.IsConnected()
		case <-look.C:
		}
	}
	return b.conn.IsConnected()
}

// CheckDestination implements [brokers.DestinationChecker]. It asks which stream takes the subject;
// with [Settings.CreateDestinations] none need take it yet.
func (b *Broker) CheckDestination(ctx context.Context, destination string) error {
	if !b.gate.Enter() {
		return brokers.ErrClosed
	}
	defer b.gate.Leave()
	subject, err := subjectOf(b.options.prefix, destination)
	if err != nil {
		return brokers.Permanent(fmt.Errorf("nats: look at %q: %w", shortened(destination), err))
	}
	if !b.conn.IsConnected() {
		return brokers.Unavailable(brokers.ScopeBroker, fmt.Errorf("nats: look at %q: %w", destination, b.explained(nats.ErrDisconnected)))
	}
	allowed, err := b.ask(ctx, streamNames, func(ctx context.Context) error {
		_, err := b.js.StreamNameBySubject(ctx, subject)
		return err
	})
	if !allowed {
		return nil // a publisher need not be
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrStreamNotFound) && b.options.streams != nil:
		return nil
	case errors.Is(err, jetstream.ErrStreamNotFound):
		err = jetstream.ErrNoStreamResponse
	}
	return b.failed(ctx, subject, err)
}

// Subjects on which a server answers questions.
const (
	streamNames = "$JS.API.STREAM.NAMES"
	accountInfo = "$JS.API.INFO"
)

// ask puts a question to the server, by its subject. It ends at once where the user may not ask.
func (b *Broker) ask(ctx context.Context, subject string, question func(context.Context) error) (allowed bool, err error) {
	l := b.enter(subject)
	defer b.leave(l)
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	go func() {
		select {
		case <-l.denied:
			cancel()
		case <-ctx.Done():
		}
	}()
	err = question(ctx)
	select {
	case <-l.denied:
		return false, nil
	default:
		return true, err
	}
}

// errNoJetStream is why no stream answers in a cluster most of whose servers are gone.
var errNoJetStream = errors.New("JetStream does not answer: it has no leader; " + quorum)

// noResponse asks why no stream answers on a subject: JetStream is off, or has no leader, or the
// stream has none. Nil where no stream takes the subject, and where the user may not ask.
func (b *Broker) noResponse(ctx context.Context, subject string) error {
	if off := b.outage(ctx); off != nil {
		return off
	}
	var name string
	allowed, err := b.ask(ctx, streamNames, func(ctx context.Context) (err error) {
		name, err = b.js.StreamNameBySubject(ctx, subject)
		return err
	})
	switch {
	case !allowed || ctx.Err() != nil:
		return nil //nolint:nilerr // what cannot be asked is not known
	case err == nil:
		return fmt.Errorf("the stream %q %w", name, errNoLeader)
	case errors.Is(err, context.DeadlineExceeded): // only the leader of all answers
		return errNoJetStream
	default:
		return nil
	}
}

// outage asks whether it is JetStream that is missing, where a stream seems to be: it is not enabled,
// or its cluster has no leader. Nil where the user may not ask.
func (b *Broker) outage(ctx context.Context) error {
	allowed, err := b.ask(ctx, accountInfo, func(ctx context.Context) error {
		_, err := b.js.AccountInfo(ctx)
		return err
	})
	switch {
	case !allowed || ctx.Err() != nil:
		return nil //nolint:nilerr // what cannot be asked is not known to be missing
	case errors.Is(err, context.DeadlineExceeded): // servers say so only ten seconds later
		return errNoJetStream
	default:
		return err
	}
}

// Close implements [brokers.Broker].
func (b *Broker) Close(ctx context.Context) error {
	first, err := b.gate.Close(ctx)
	if !first {
		return nil
	}
	close(b.abandoned) // publishes that did not end in time say so in their results
	b.conn.Close()
	if err != nil {
		return fmt.Errorf("nats: close: %w", err)
	}
	return nil
}
