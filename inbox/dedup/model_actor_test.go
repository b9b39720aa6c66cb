package dedup

import (
	"context"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/inbox"
)

// actor is a delivery of a message, as a coroutine that stops before each operation.
type actor struct {
	m       *inbox.Message // nil: it resumes the entity
	next    func() (string, bool)
	stop    func()
	yield   func(string) bool
	pending string // the operation that comes next; empty at the end
	r       *run[ledger]
	dead    bool
	lying   bool
	learned string // from the memory, since it has loaded the entity
	err     error
	outcome inbox.Outcome
}

type actorKey struct{}

// by is who is at work.
func by(ctx context.Context) *actor { return ctx.Value(actorKey{}).(*actor) }

// operate is how an actor does something to the world.
func operate(ctx context.Context, name string, do func()) error {
	a := by(ctx)
	if a.dead || !a.yield(name) {
		a.dead = true
		return errCrash
	}
	do()
	a.lying = false
	return nil
}

// start begins a delivery, up to its first operation. n is different for all actors of a world, as
// the ids are made of it.
func (w *world) start(n int, m *inbox.Message) *actor {
	config := Config[ledger]{
		Entities: w, EntityID: func(*inbox.Message) (string, error) { return "entity", nil }, Handle: w.handle, Dispatch: w,
		Conflicts: 1000,
	}
	if w.byToken {
		config.Tokens, config.TokenOf = w, KeyToken
	} else {
		config.Store = w
	}
	p, err := New(config)
	if err != nil {
		panic(err)
	}
	drawn := 0
	p.pause = func(context.Context, int) {} // the scheduler decides who waits
	p.fresh = func() (uuid.UUID, error) {
		drawn++
		return uuid.UUID{0: 0xbb, 14: byte(n), 15: byte(drawn)}, nil
	}
	once := p.once
	a := &actor{m: m}
	p.once = func(ctx context.Context, r *run[ledger]) (inbox.Outcome, error) {
		a.r = r
		return once(ctx, r)
	}
	a.next, a.stop = iter.Pull(func(yield func(string) bool) {
		a.yield = yield
		ctx := context.WithValue(context.Background(), actorKey{}, a)
		if m == nil {
			_, a.err = p.Resume(ctx, "entity")
		} else {
			a.outcome, a.err = p.Handle(ctx, m)
		}
		if a.err == nil { // the broker hears of it, or not
			a.err = operate(ctx, "confirm", func() {})
		}
	})
	a.step()
	return a
}

// step does the operation that the actor is at, and goes to the next one.
func (a *actor) step() {
	var more bool
	if a.pending, more = a.next(); !more {
		a.pending = ""
	}
}

// crash lets the actor die before the operation that it is at.
func (a *actor) crash() {
	a.stop()
	a.pending = ""
}

// choice is what the scheduler decides.
type choice struct {
	actor int
	act   byte // 's'tep, 'c'rash, 'l'ie: the save is done, and looks like a conflict
}

// String is such as "0s": actor 0 does a step.
func (c choice) String() string { return fmt.Sprintf("%d%c", c.actor, c.act) }

// system is a world and who is in it.
type system struct {
	*world
	messages []*inbox.Message
	actors   []*actor
	crashes  int // that may happen yet
	lies     int
}

// begin starts copies of each message.
func begin(byToken bool, messages, copies, crashes, lies int) *system {
	s := &system{crashes: crashes, lies: lies}
	for n := range messages {
		s.messages = append(s.messages, message(n))
	}
	s.world = newWorld(byToken, s.messages)
	s.eager = true
	for _, m := range s.messages {
		for range copies {
			s.deliver(m)
		}
	}
	return s
}

func (s *system) deliver(m *inbox.Message) {
	s.actors = append(s.actors, s.start(len(s.actors), m))
}

// choices are what can happen next.
func (s *system) choices() (all []choice) {
	for n, a := range s.actors {
		if a.pending == "" {
			continue
		}
		all = append(all, choice{n, 's'})
		if s.crashes > 0 {
			all = append(all, choice{n, 'c'})
		}
		if s.lies > 0 && a.pending == "save" {
			all = append(all, choice{n, 'l'})
		}
	}
	return all
}

// do lets it happen. What was not confirmed is delivered again.
func (s *system) do(c choice) {
	a := s.actors[c.actor]
	switch c.act {
	case 'c':
		s.crashes--
		a.crash()
	case 'l':
		s.lies--
		a.lying = true
		a.step()
	default:
		a.step()
	}
	if a.pending == "" && a.err != nil && a.m != nil {
		s.deliver(a.m)
	}
}

// end lets late copies come, of everything, and lists what is wrong then.
func (s *system) end(sequential bool) []string {
	for _, m := range s.messages {
		late := s.start(len(s.actors), m)
		for late.pending != "" {
			late.step()
		}
		if late.outcome != inbox.Duplicate || late.err != nil {
			s.bad = append(s.bad, fmt.Sprintf("a late copy of message %s is %q %v", m.ID, late.outcome, late.err))
		}
	}
	for range 2 {
		for _, o := range s.sent {
			s.consume(o)
		}
	}
	return s.judge(s.messages, sequential)
}

// redraws is how many tokens of one message were drawn in vain so far.
func (s *system) redraws() (n int) {
	for i := range s.entity.Outbox.Pending {
		n = max(n, len(s.entity.Outbox.Pending[i].Replaced))
	}
	return n
}

// close ends actors that are left.
func (s *system) close() {
	for _, a := range s.actors {
		a.stop()
	}
}

// fingerprint tells situations apart: the world, and what each actor knows, which is all that
// decides what it does. Versions are only current or not, ids only the same or not, and of two
// actors that are alike it does not matter which is which.
func (s *system) fingerprint() string {
	var actors []string
	for _, a := range s.actors {
		if a.pending != "" {
			actors = append(actors, a.describe(s.entity.Version))
		}
	}
	slices.SortFunc(actors, func(a, b string) int {
		return strings.Compare(drawnID.ReplaceAllString(a, ""), drawnID.ReplaceAllString(b, ""))
	})
	text := fmt.Sprint(s.world, s.crashes, s.lies, actors)
	names := map[string]string{}
	return drawnID.ReplaceAllStringFunc(text, func(id string) string {
		if names[id] == "" {
			names[id] = fmt.Sprint("#", len(names))
		}
		return names[id]
	})
}

var drawnID = regexp.MustCompile(`bb[0-9a-f-]{34}`)

func (a *actor) describe(current Version) string {
	r := a.r
	text := fmt.Sprint(a.m.ID, a.pending)
	if a.pending == "confirm" {
		return text
	}
	text += fmt.Sprint(r.known, r.dispatched, r.remembered, r.created, r.own, a.learned)
	if a.pending == "load" { // what it has loaded before is forgotten
		return text
	}
	return text + fmt.Sprint(r.e.Version == current, r.e.State, describe(&r.e.Outbox))
}
