package dedup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/inbox"
)

// defaultConflicts is how many conflicts of one delivery are borne.
const defaultConflicts = 10

// Config is what a [Processor] is made of.
type Config[S any] struct {
	// Entities is the store of the state. Required. Processors that share entities have to share
	// Store, Tokens and Dispatch too, or never to resume each other's messages: Resume finishes
	// everything that an entity has pending.
	Entities Entities[S]
	// EntityID says which entity a message is for. Required. Its error goes to the consumer as it
	// is; mark it as inbox.Permanent where no repetition would help. The empty id is such an error.
	// All messages of one processor must go to entities of one kind, and the same message always to
	// the same entity.
	EntityID func(m *inbox.Message) (string, error)
	// Handle changes the state for a message and returns what is to be sent. Required. It may be
	// run more than once for a message; only the run whose state is saved counts. So it must do
	// nothing that lasts but that. The context is the message's, see inbox.Message.Context. Its
	// error goes to the consumer as it is, and nothing is saved.
	Handle func(ctx context.Context, state *S, m *inbox.Message) ([]Outgoing, error)
	// Dispatch sends the outgoing messages. Required where Handle returns any.
	Dispatch Dispatcher

	// Store remembers the messages that were handled. Either it or Tokens is required.
	Store Store
	// Tokens has the tokens of outgoing messages, and without a Store those of incoming ones too.
	// With a Store incoming messages need none: that is the way from producers that know nothing of
	// tokens to consumers that do.
	Tokens Tokens
	// TokenOf says which token an incoming message has; default [CarriedToken]. [KeyToken] is for
	// producers that make tokens of message keys.
	TokenOf func(m *inbox.Message) (string, error)

	// Conflicts is how often the entity may be changed by another process during one delivery
	// before the message goes back, to come again after a pause, without an attempt counted. Before
	// each repetition there is a pause at random, of up to 4 ms after the first and up to 250 ms in
	// the end. Default 10.
	Conflicts int
	// Now is the clock for the age of entries and tokens, default time.Now.
	Now func() time.Time
	// After is called after each step, for tests of your own stores: an error ends the delivery
	// there, as a crash would. The message is nil in [Processor.Resume]. Default: nothing.
	After func(ctx context.Context, m *inbox.Message, step Step) error
}

// check reports everything that is wrong.
func (c *Config[S]) check() error {
	var problems []error
	missing := func(is bool, what string) {
		if is {
			problems = append(problems, errors.New("dedup: "+what))
		}
	}
	missing(c.Entities == nil, "Config.Entities is missing: the store of the state")
	missing(c.EntityID == nil, "Config.EntityID is missing: which entity is a message for?")
	missing(c.Handle == nil, "Config.Handle is missing: the function that changes the state")
	missing(c.Store == nil && c.Tokens == nil, "Config.Store and Config.Tokens are missing: give one of them")
	missing(c.TokenOf != nil && (c.Store != nil || c.Tokens == nil), "Config.TokenOf is for incoming messages with tokens: it needs Tokens, and no Store")
	missing(c.Conflicts < 0, fmt.Sprintf("Config.Conflicts is %d: give at least 1, or 0 for %d", c.Conflicts, defaultConflicts))
	return errors.Join(problems...)
}

// A Processor takes messages to entities, each exactly once. It implements inbox.Handler and is
// safe for concurrent use, in any number of processes.
type Processor[S any] struct {
	config Config[S]
	fresh  func() (uuid.UUID, error)
	// pause waits after the n-th conflict in a row; tests do not.
	pause func(ctx context.Context, n int)
	// once goes through the steps; tests go through them in other orders, to see that they can
	// tell.
	once func(ctx context.Context, r *run[S]) (inbox.Outcome, error)
}

// New returns a processor. The error tells everything that is wrong with the configuration.
func New[S any](config Config[S]) (*Processor[S], error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	if config.TokenOf == nil {
		config.TokenOf = CarriedToken
	}
	if config.Conflicts == 0 {
		config.Conflicts = defaultConflicts
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	return &Processor[S]{config: config, fresh: uuid.NewV7, pause: pause, once: once[S]}, nil
}

// byToken reports whether incoming messages need a token.
func (c *Config[S]) byToken() bool { return c.Store == nil }

// Handle implements inbox.Handler. It answers inbox.Handled, also where it has only finished what
// another delivery has begun, or inbox.Duplicate.
//
// Errors of Config.EntityID, TokenOf and Handle are returned as they are. All others, conflicts
// included, are marked as inbox.Unavailable, so that no attempt is counted, except for those marked
// as inbox.Permanent. A message that is abandoned after its state was saved has taken effect, but
// its outgoing messages wait in the outbox of its entity: see Resume.
func (p *Processor[S]) Handle(ctx context.Context, m *inbox.Message) (inbox.Outcome, error) {
	r := &run[S]{p: p, c: &p.config, m: m, consumer: m.Consumer, key: m.Identity()}
	if err := ValidateConsumer(m.Consumer); err != nil {
		return "", inbox.Permanent(err)
	}
	var err error
	if r.entity, err = p.config.EntityID(m); err != nil {
		return "", err
	}
	if r.entity == "" {
		return "", inbox.Permanent(fmt.Errorf("dedup: Config.EntityID gives no id for message %s of type %s", m.ID, m.Type))
	}
	if p.config.byToken() {
		if r.token, err = p.config.TokenOf(m); err != nil {
			return "", err
		}
		if err := (Token{Consumer: m.Consumer, Value: r.token}).Validate(); err != nil {
			return "", inbox.Permanent(err)
		}
	}
	if m.Envelope != nil {
		ctx = m.Context(ctx)
	}
	return r.run(ctx)
}

// Resume finishes what is pending in the outbox of an entity: messages that were abandoned after
// their state was saved, such as those whose outgoing messages a broker refused permanently. It
// returns how many it has finished. It runs no handler, and is safe beside all deliveries. Errors
// are those of Handle; the messages after the failing one wait on. A message that a processor with
// the other kind of memory has taken in, by token or without, is such an error: it is that one's to
// finish.
func (p *Processor[S]) Resume(ctx context.Context, entity string) (int, error) {
	e, err := p.config.Entities.Load(ctx, entity)
	if err != nil {
		return 0, setback(fmt.Errorf("dedup: load entity %q: %w", entity, err))
	}
	for n := range e.Outbox.Pending {
		pending := &e.Outbox.Pending[n]
		if err := p.config.remembers(pending); err != nil {
			return n, setback(fmt.Errorf("dedup: resume entity %q: message %s of consumer %q %w", entity, pending.Key, pending.Consumer, err))
		}
		r := &run[S]{p: p, c: &p.config, entity: entity, consumer: pending.Consumer, key: pending.Key, token: pending.Token, known: true}
		if _, err := r.run(ctx); err != nil {
			return n, err
		}
	}
	return len(e.Outbox.Pending), nil
}

// remembers reports a message that would be remembered where its own consumer does not look: its
// next copy would take effect again.
func (c *Config[S]) remembers(p *Pending) error {
	switch {
	case c.byToken() && p.Token == "":
		return errors.New("was taken in without a token, and Config.Store is missing: resume it with the processor that has taken it in")
	case !c.byToken() && p.Token != "":
		return errors.New("was taken in by token, and Config.Store is set: resume it with the processor that has taken it in")
	}
	return nil
}

// setback marks an error as an outage: it is no fault of the message.
func setback(err error) error {
	if inbox.IsPermanent(err) {
		return err
	}
	return inbox.Unavailable(err)
}
