package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"gorm.io/gorm"
)

// Handlers are the functions of one consumer by the type of events they take, added with [On] and
// [Upcast]. As a [Handler] it decodes the event and runs its function in a transaction of the
// consumer's database, by [Handle].
//
// What it cannot hand on is reported, and never dropped in silence:
//
//   - A type without a handler is skipped: confirmed, counted ([Handlers.Unknown]), and logged as
//     a warning at its first message. Say [Handlers.Ignore] for those that are meant to be, or
//     [WithRejectUnknown].
//   - A version that is not handled, of a type of which another version is, becomes a dead letter:
//     its producer is ahead of this consumer. It can be redriven (see [Redrive]) once the consumer
//     knows it.
//   - An event whose data does not fit its Go type, or that its upcast refuses, becomes a dead
//     letter.
//
// All methods are safe for concurrent use.
type Handlers struct {
	db            *gorm.DB
	options       []Option
	rejectUnknown bool
	checksums     bool
	log           *slog.Logger

	mu       sync.RWMutex
	handled  map[string]*handled
	upcasts  map[string]*upcast
	ignored  map[string]struct{}
	decoders map[reflect.Type]decode
	unknown  map[string]int64
	problems []error
	resolved map[string]*route // by wire type; nil after a change
	err      error             // of resolved
}

var _ Handler = (*Handlers)(nil)

// A HandlersOption refines Handlers. Each [Option] is one, and is given to each [Handle].
type HandlersOption interface{ refine(h *Handlers) }

type handlersOption func(*Handlers)

func (o handlersOption) refine(h *Handlers) { o(h) }

// WithRejectUnknown makes dead letters of messages of types without a handler, instead of
// skipping them. Types that are ignored are skipped all the same.
func WithRejectUnknown() HandlersOption {
	return handlersOption(func(h *Handlers) { h.rejectUnknown = true })
}

// WithChecksums compares the data of each message in the internal form with its checksum, and
// makes dead letters of those that differ. It costs the canonical form of the data, so it is off by
// default.
func WithChecksums() HandlersOption {
	return handlersOption(func(h *Handlers) { h.checksums = true })
}

// WithLogger sets where unknown types are reported. Default: slog.Default().
func WithLogger(log *slog.Logger) HandlersOption {
	return handlersOption(func(h *Handlers) { h.log = log })
}

// NewHandlers returns the empty handlers of a consumer whose state is in db. With the plugin of
// package gormplugin on that handle, what the handlers raise goes to the consumer's own outbox.
func NewHandlers(db *gorm.DB, opts ...HandlersOption) *Handlers {
	h := &Handlers{
		db: db, handled: map[string]*handled{}, upcasts: map[string]*upcast{}, ignored: map[string]struct{}{},
		unknown: map[string]int64{}, decoders: map[reflect.Type]decode{},
	}
	for _, opt := range opts {
		opt.refine(h)
	}
	if h.log == nil {
		h.log = slog.Default()
	}
	if db == nil {
		h.problems = append(h.problems, errors.New("inbox: NewHandlers: the GORM handle is nil"))
	} else if s, _, err := prepare(db, h.options); err != nil { // what each message would be answered with
		h.problems = append(h.problems, err)
	} else if s.decoder != nil {
		h.problems = append(h.problems, errors.New("inbox: NewHandlers: WithDecoder is an option of Redeliver: give the consumer its decoder in ConsumerConfig.Decoder"))
	}
	return h
}

// Ignore declares types that this consumer has no use for, as they stand on the wire: they are
// skipped without a word.
func (h *Handlers) Ignore(wireTypes ...string) {
	h.change(func() {
		for _, t := range wireTypes {
			h.ignored[t] = struct{}{}
		}
	})
}

// Types returns the wire types that are handled, upcast ones included, sorted.
func (h *Handlers) Types() []string {
	routes, _ := h.routes()
	return slices.Sorted(maps.Keys(routes))
}

// Producers decide how many types there are, so only so many are distinguished; the rest is counted
// together.
const (
	maxUnknown = 1000
	otherTypes = "(others)"
)

// Unknown counts the messages of types, or versions, without a handler, by wire type, since this
// process has started. Ignored ones are not among them. Types are cut at 512 bytes. Beyond a thousand types, further ones are
// counted together as "(others)".
func (h *Handlers) Unknown() map[string]int64 {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return maps.Clone(h.unknown)
}

// Err reports all problems of the handlers, joined: types that are handled twice, upcasts that lead
// nowhere, options that make no sense. Call it at start-up; consumers do, too.
func (h *Handlers) Err() error {
	_, err := h.routes()
	return err
}

// Handle implements [Handler]. With problems in the handlers every message is answered by them, as
// unavailable.
func (h *Handlers) Handle(ctx context.Context, m *Message) (Outcome, error) {
	routes, err := h.routes()
	if err != nil {
		return "", Unavailable(err)
	}
	route, ok := routes[m.Type]
	if !ok {
		return h.notHandled(ctx, m, routes)
	}
	if h.checksums && m.Envelope.Metadata.Envelope.Checksum != "" {
		if err := m.Envelope.VerifyChecksum(); err != nil {
			return h.reject(ctx, m, err)
		}
	}
	event, err := route.event(m)
	if err != nil {
		return h.reject(ctx, m, err)
	}
	return Handle(ctx, h.db, m, func(tx *gorm.DB) error { return route.run(tx, event, m) }, h.options...)
}

// Skips implements [Skipper]: neither the type nor another version of it is handled, and unknown types
// are not rejected.
func (h *Handlers) Skips(wireType string) bool {
	routes, err := h.routes()
	if err != nil || routes[wireType] != nil {
		return false
	}
	h.mu.RLock()
	_, ignored := h.ignored[wireType]
	h.mu.RUnlock()
	return ignored || !h.rejectUnknown && len(otherVersions(wireType, routes)) == 0
}

// Reject implements [Rejecter]: the message becomes a dead letter of the inbox table, under its key
// and without a type, as its type is not certain. It needs no token with [WithTokens], as no
// producer has its key.
func (h *Handlers) Reject(ctx context.Context, m *Message, why error) (Outcome, error) {
	kept := *m
	kept.Type = ""
	return reject(ctx, h.db, &kept, why, append(slices.Clip(h.options), func(s *settings) { s.byToken = false })...)
}

// notHandled decides about a message whose type has no function.
func (h *Handlers) notHandled(ctx context.Context, m *Message, routes map[string]*route) (Outcome, error) {
	h.mu.Lock()
	_, ignored := h.ignored[m.Type]
	shown := cut(m.Type, maxText) // a header may have any length
	counted := shown
	if _, known := h.unknown[counted]; !known {
		counted = otherTypes
		if len(h.unknown) < maxUnknown {
			counted = strings.Clone(shown) // what is kept does not keep its message
		}
	}
	if !ignored {
		h.unknown[counted]++
	}
	first := h.unknown[counted] == 1
	h.mu.Unlock()
	if ignored {
		return Skipped, nil
	}
	known := otherVersions(m.Type, routes)
	if len(known) > 0 {
		return h.reject(ctx, m, fmt.Errorf("inbox: version %s is not handled, only %s: add a handler or an upcast, then redrive it", shown, strings.Join(known, ", ")))
	}
	if h.rejectUnknown {
		return h.reject(ctx, m, fmt.Errorf("inbox: type %s is not handled: add a handler and redrive it, or ignore the type", shown))
	}
	if first {
		h.log.WarnContext(ctx, "message type without handler", slog.String("consumer", m.Consumer), slog.String("source", m.Source),
			slog.String("type", shown), slog.String("message_id", cut(m.ID, maxText)))
	}
	return Skipped, nil
}

// otherVersions returns the handled types that differ from t by their version only.
func otherVersions(t string, routes map[string]*route) []string {
	name, ok := unversioned(t)
	if !ok {
		return nil
	}
	var others []string
	for _, other := range slices.Sorted(maps.Keys(routes)) {
		if n, ok := unversioned(other); ok && n == name {
			others = append(others, other)
		}
	}
	return others
}

// unversioned cuts the version from a wire type: "Ordering.OrderPlaced" of
// "Ordering.OrderPlaced.v1".
func unversioned(t string) (name string, ok bool) {
	dot := strings.LastIndex(t, ".v")
	if dot < 0 || dot+2 == len(t) || strings.Trim(t[dot+2:], "0123456789") != "" {
		return "", false
	}
	return t[:dot], true
}

func (h *Handlers) reject(ctx context.Context, m *Message, why error) (Outcome, error) {
	if err := Reject(ctx, h.db, m, why, h.options...); refused(err) {
		return "", err
	} else if err != nil {
		return "", Unavailable(errors.Join(err, why))
	}
	return DeadLettered, nil
}

// change makes a change under the lock.
func (h *Handlers) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	h.resolved = nil
}

// routes returns what is handled, worked out anew after a change.
func (h *Handlers) routes() (map[string]*route, error) {
	h.mu.RLock()
	resolved, err := h.resolved, h.err
	h.mu.RUnlock()
	if resolved != nil {
		return resolved, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.resolved == nil {
		h.resolve()
	}
	return h.resolved, h.err
}
