package dedup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/inbox"
)

// The model: one entity, its store, the memory and the consumer of what is dispatched, all in a few
// maps. Everything that touches them is an operation of an actor, before which the scheduler may
// let others go first, or let the actor die.

// errCrash is what a dead actor gets from everything.
var errCrash = errors.New("the process is dead")

// ledger is the state of the entity: the messages that took effect.
type ledger struct{ Seen []string }

// world is everything that outlives actors.
type world struct {
	byToken bool
	entity  Entity[ledger]
	version int
	handled map[string]bool
	tokens  map[Token]bool
	sent    []Outgoing     // everything that was dispatched
	effects map[string]int // downstream, by what the message is
	ids     map[string]uuid.UUID
	known   map[string]bool // downstream memory, where it has no tokens
	eager   bool            // downstream is quick
	bad     []string        // what must not happen, and did
}

const (
	consumer   = "model"
	downstream = "downstream"
)

func newWorld(byToken bool, messages []*inbox.Message) *world {
	w := &world{
		byToken: byToken, handled: map[string]bool{}, tokens: map[Token]bool{}, effects: map[string]int{}, ids: map[string]uuid.UUID{},
		known: map[string]bool{},
	}
	if byToken {
		for _, m := range messages {
			w.tokens[Token{consumer, m.Key.String()}] = true
		}
	}
	return w
}

// message is the n-th message.
func message(n int) *inbox.Message {
	return &inbox.Message{Consumer: consumer, Key: uuid.UUID{0: 0xaa, 15: byte(n)}, ID: fmt.Sprint(n)}
}

// handle is the application: it notes the message and sends one on.
func (w *world) handle(_ context.Context, state *ledger, m *inbox.Message) ([]Outgoing, error) {
	state.Seen = append(state.Seen, m.ID)
	out := Outgoing{Destination: "next", Payload: []byte(m.ID)}
	if w.byToken {
		out.Receivers = []string{downstream}
	}
	return []Outgoing{out}, nil
}

// Load implements Entities.
func (w *world) Load(ctx context.Context, _ string) (e Entity[ledger], err error) {
	err = operate(ctx, "load", func() {
		e = clone(w.entity)
		by(ctx).learned = ""
	})
	return e, err
}

// Save implements Entities.
func (w *world) Save(ctx context.Context, _ string, e Entity[ledger]) (version Version, err error) {
	failed := operate(ctx, "save", func() {
		if e.Version != w.entity.Version {
			err = ErrConflict
			return
		}
		w.version++
		w.entity = clone(e)
		w.entity.Version = Version(fmt.Sprint(w.version))
		version = w.entity.Version
		if by(ctx).lying { // a client that repeats by itself
			err = ErrConflict
		}
	})
	return version, errors.Join(failed, err)
}

// Contains implements Store.
func (w *world) Contains(ctx context.Context, _ string, key uuid.UUID) (has bool, err error) {
	err = operate(ctx, "contains", func() {
		has = w.handled[key.String()]
		by(ctx).learned = fmt.Sprint(has)
	})
	return has, err
}

// Add implements Store.
func (w *world) Add(ctx context.Context, _ string, key uuid.UUID, _ time.Time) error {
	return operate(ctx, "add", func() { w.handled[key.String()] = true })
}

// Create implements Tokens.
func (w *world) Create(ctx context.Context, tokens []Token, _ time.Time) error {
	return operate(ctx, "create", func() {
		for _, token := range tokens {
			w.tokens[token] = true
		}
	})
}

// Exists implements Tokens.
func (w *world) Exists(ctx context.Context, token Token) (has bool, err error) {
	err = operate(ctx, "exists", func() {
		has = w.tokens[token]
		by(ctx).learned = fmt.Sprint(has)
	})
	return has, err
}

// Remove implements Tokens.
func (w *world) Remove(ctx context.Context, tokens []Token) error {
	return operate(ctx, "remove", func() {
		for _, token := range tokens {
			delete(w.tokens, token)
		}
	})
}

// PurgeOlderThan implements Tokens.
func (*world) PurgeOlderThan(context.Context, time.Time, int) (int64, error) { return 0, nil }

// Dispatch implements Dispatcher.
func (w *world) Dispatch(ctx context.Context, messages []Outgoing) error {
	return operate(ctx, "dispatch", func() {
		for _, o := range messages {
			w.sent = append(w.sent, o)
			if first, ok := w.ids[string(o.Payload)]; ok && first != o.ID {
				w.bad = append(w.bad, fmt.Sprintf("message %s was sent on with two ids", o.Payload))
			}
			w.ids[string(o.Payload)] = o.ID
			if w.eager {
				w.consume(o)
			}
		}
	})
}

// consume is the consumer downstream, which is right by itself.
func (w *world) consume(o Outgoing) {
	what := string(o.Payload)
	if !w.byToken {
		if !w.known[o.ID.String()] {
			w.effects[what]++
		}
		w.known[o.ID.String()] = true
		return
	}
	if token := (Token{downstream, o.Token}); w.tokens[token] {
		w.effects[what]++
		delete(w.tokens, token)
	} else if w.effects[what] == 0 {
		w.bad = append(w.bad, fmt.Sprintf("what message %s caused was taken for a copy", what))
	}
}

// clone shares nothing.
func clone(e Entity[ledger]) Entity[ledger] {
	e.State.Seen = slices.Clone(e.State.Seen)
	e.Outbox.Pending = slices.Clone(e.Outbox.Pending)
	for i := range e.Outbox.Pending {
		p := &e.Outbox.Pending[i]
		p.Outgoing, p.Replaced = slices.Clone(p.Outgoing), slices.Clone(p.Replaced)
	}
	return e
}

func describe(o *Outbox) string {
	var b strings.Builder
	for i := range o.Pending {
		p := &o.Pending[i]
		fmt.Fprint(&b, " ", p.Key[15], p.Phase, p.Replaced)
		for j := range p.Outgoing {
			fmt.Fprint(&b, " ", p.Outgoing[j].ID, " ", p.Outgoing[j].Token)
		}
	}
	return b.String()
}

// String describes what of the world has consequences.
func (w *world) String() string {
	var b strings.Builder
	fmt.Fprint(&b, w.entity.State.Seen, describe(&w.entity.Outbox), slices.Sorted(maps.Keys(w.handled)), w.effects, len(w.known), len(w.bad))
	tokens := slices.Collect(maps.Keys(w.tokens))
	slices.SortFunc(tokens, func(a, b Token) int { return strings.Compare(a.Value, b.Value) })
	fmt.Fprint(&b, tokens)
	sent := map[string]bool{}
	for _, o := range w.sent {
		sent[o.ID.String()+" "+o.Token] = true
	}
	fmt.Fprint(&b, slices.Sorted(maps.Keys(sent)))
	return b.String()
}

// judge lists what is wrong after everything is over. Sequential says that no two actors were at
// one message at a time.
func (w *world) judge(messages []*inbox.Message, sequential bool) []string {
	bad := slices.Clone(w.bad)
	complain := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	if !w.entity.Outbox.Empty() {
		complain("the outbox is not empty")
	}
	travelled := map[string]bool{}
	for _, o := range w.sent {
		travelled[o.Token] = true
	}
	for _, m := range messages {
		seen := 0
		for _, id := range w.entity.State.Seen {
			if id == m.ID {
				seen++
			}
		}
		if seen != 1 {
			complain("message %s took effect %d times", m.ID, seen)
		}
		if n := w.effects[m.ID]; n != 1 {
			complain("what message %s caused took effect %d times", m.ID, n)
		}
		if !w.byToken && !w.handled[m.Key.String()] {
			complain("message %s is not remembered", m.ID)
		}
	}
	for token := range w.tokens {
		switch {
		case token.Consumer == consumer:
			complain("the token of message %s is left", token.Value)
		case travelled[token.Value]:
			complain("a token that travelled is left")
		case sequential:
			complain("a token is left that nobody knows of")
		}
	}
	slices.Sort(bad)
	return slices.Compact(bad)
}
