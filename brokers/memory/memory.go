// Package memory is a broker that keeps what is published in memory: for tests, examples and demos.
//
//	broker := memory.New()
//	broker.Fail = func(m brokers.Message) error { ... } // optional: which message fails, and how
//	...
//	got, err := broker.Wait(ctx, "ordering::order", 3)  // no sleeping
//
// It passes the same conformance suite as the brokers for production. It keeps every message until
// [Broker.Reset], so that it is no place for a load that goes on for days.
package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
)

// Broker keeps published messages per destination, in order. Make one with [New]. All methods are
// safe for concurrent use.
type Broker struct {
	// Fail decides about each message before it is published: an error is the message's result, as
	// it is (classify it with brokers.Permanent, Retryable or Unavailable; plain errors are
	// retryable), and the message is not published. nil = all succeed. Set it before the first
	// Publish; what it refers to may change later, under a lock or atomically. It is called without
	// any of the broker's locks held, by several goroutines when several publish. It may block to
	// play a slow broker.
	Fail func(brokers.Message) error

	maxBytes int
	gate     adapter.Gate

	mu       sync.Mutex
	sequence int
	topics   map[string][]kept
	changed  chan struct{} // closed and replaced at every change
	closed   bool
	outage   error
}

// kept is a published message with its place among all that this broker has taken.
type kept struct {
	sequence int
	message  brokers.Message
}

// An Option changes a [New] broker.
type Option func(*Broker)

// WithMaxMessageBytes makes the broker refuse larger payloads permanently, as brokers for production
// do. Default: no limit.
func WithMaxMessageBytes(n int) Option { return func(b *Broker) { b.maxBytes = max(n, 0) } }

// New returns an empty broker.
func New(opts ...Option) *Broker {
	b := &Broker{topics: map[string][]kept{}, changed: make(chan struct{})}
	for _, opt := range opts {
		opt(b)
	}
	return b
}

var errEmptyDestination = errors.New("the destination is empty")

// Publish implements [brokers.Broker]. It asks Fail about the messages one by one and in order; ctx
// is looked at before each.
func (b *Broker) Publish(ctx context.Context, msgs []brokers.Message) []brokers.Result {
	if !b.gate.Enter() {
		return adapter.Closed(msgs)
	}
	defer b.gate.Leave()

	var call adapter.Call
	call.Begin(msgs, nil)
	for i, m := range msgs {
		if !call.Admit(ctx, i) {
			continue
		}
		if err := b.down(); err != nil { // whoever runs into it is told, the rest is not tried
			call.Fail(i, err)
		} else if err := b.refusal(m); err != nil {
			call.Fail(i, err)
		} else {
			call.Confirm(i, b.keep(m))
		}
	}
	return call.Results(ctx)
}

// refusal is nil for a message that may be published.
func (b *Broker) refusal(m brokers.Message) error {
	switch {
	case m.Destination == "":
		return brokers.Permanent(fmt.Errorf("memory: publish: %w", errEmptyDestination))
	case b.maxBytes > 0 && len(m.Payload) > b.maxBytes:
		return brokers.Permanent(fmt.Errorf("memory: publish to %q: the payload has %d bytes, at most %d are allowed",
			m.Destination, len(m.Payload), b.maxBytes))
	case b.Fail != nil:
		return b.Fail(clone(m))
	default:
		return nil
	}
}

func (b *Broker) keep(m brokers.Message) (id string) {
	m = clone(m)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sequence++
	b.topics[m.Destination] = append(b.topics[m.Destination], kept{b.sequence, m})
	b.announce()
	return strconv.Itoa(b.sequence)
}

// announce wakes all who wait for a change. It needs mu.
func (b *Broker) announce() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// clone makes m independent of the slices of whoever published it.
func clone(m brokers.Message) brokers.Message {
	m.Payload, m.Attributes = bytes.Clone(m.Payload), slices.Clone(m.Attributes)
	return m
}

// Capabilities implements [brokers.Broker].
func (b *Broker) Capabilities() brokers.Capabilities {
	return brokers.Capabilities{Ordering: true, MaxMessageBytes: b.maxBytes}
}

// Outage takes the broker away: publishes are unavailable with this cause, and Ping fails, until
// Outage(nil). For failures of single messages or destinations see Fail.
func (b *Broker) Outage(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.outage = cause
}

func (b *Broker) down() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.outage == nil {
		return nil
	}
	return brokers.Unavailable(brokers.ScopeBroker, fmt.Errorf("memory: %w", b.outage))
}

// Ping implements [brokers.Broker]: it succeeds until Close, but for an [Broker.Outage].
func (b *Broker) Ping(ctx context.Context) error {
	if !b.gate.Enter() {
		return brokers.ErrClosed
	}
	defer b.gate.Leave()
	if err := b.down(); err != nil {
		return err
	}
	return ctx.Err()
}

// Close implements [brokers.Broker]. Messages stay readable; those who wait for more are told that
// no more will come.
func (b *Broker) Close(ctx context.Context) error {
	first, err := b.gate.Close(ctx)
	if !first {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.announce()
	if err != nil {
		return fmt.Errorf("memory: close: %w", err)
	}
	return nil
}

// Destinations lists the destinations that hold a message, sorted.
func (b *Broker) Destinations() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.topics))
}

// Reset forgets all messages. Readers of [Broker.Subscribe] carry on with what is published from
// now on.
func (b *Broker) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.topics)
	b.announce()
}

// Type is the type memory of configurations. It is built into package fanout.
func Type() adapter.Type {
	return adapter.Type{Name: "memory", New: func() adapter.Settings { return new(settings) }}
}

// settings are none.
type settings struct{}

// Check implements [adapter.Settings].
func (settings) Check(section adapter.Section) {
	section.Warnf("type", "a memory broker keeps messages in one process and loses them with it: it is for tests")
}

// Open implements [adapter.Settings].
func (settings) Open(context.Context, string) (brokers.Broker, error) { return New(), nil }
