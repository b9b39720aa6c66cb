package dedup

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/inbox"
)

// run is one delivery of a message, from the first load to the last save. What it knows dies with
// it.
type run[S any] struct {
	c                       *Config[S]
	p                       *Processor[S]
	m                       *inbox.Message // nil in Resume
	entity, consumer, token string
	key                     uuid.UUID

	e          Entity[S] // as it was loaded or saved last, or is to be saved next
	own        []Token   // drawn by this run, in its last draw
	created    bool      // these were created
	known      bool      // the outbox has known the message, or knows it
	dispatched bool
	remembered bool
}

// conflict is what save has met: the steps begin anew.
type conflict struct{ error }

// Unwrap gives the cause to errors.Is and errors.As.
func (c conflict) Unwrap() error { return c.error }

// run goes through the steps until no conflict is in the way.
func (r *run[S]) run(ctx context.Context) (inbox.Outcome, error) {
	for n := 1; ; n++ {
		outcome, err := r.p.once(ctx, r)
		var met conflict
		if !errors.As(err, &met) {
			return outcome, err
		}
		if n >= r.c.Conflicts {
			return "", setback(fmt.Errorf("dedup: entity %q: %d conflicts in a row: %w", r.entity, n, met.error))
		}
		if ctx.Err() != nil {
			return "", setback(fmt.Errorf("dedup: entity %q, after a conflict: %w", r.entity, context.Cause(ctx)))
		}
		r.p.pause(ctx, n)
	}
}

// The pause after a conflict: at random, up to a limit that doubles with each in a row, so that
// those who want one entity spread out.
const (
	firstPause = 2 * time.Millisecond
	maxPause   = 250 * time.Millisecond
)

func pause(ctx context.Context, n int) {
	limit := min(firstPause<<min(n, 10), maxPause)
	timer := time.NewTimer(rand.N(limit))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// once goes through the steps. Their order is what this package is about: see its documentation.
func once[S any](ctx context.Context, r *run[S]) (inbox.Outcome, error) {
	if err := r.load(ctx); err != nil {
		return "", err
	}
	if r.pending() == nil {
		if r.known { // another process has finished it since
			return inbox.Handled, nil
		}
		if done, err := r.check(ctx); done || err != nil {
			return inbox.Duplicate, err
		}
		if err := r.take(ctx); err != nil {
			return "", err
		}
	}
	r.known = true
	return inbox.Handled, r.finish(ctx)
}

// take lets the message take effect.
func (r *run[S]) take(ctx context.Context) error {
	if err := r.handle(ctx); err != nil {
		return err
	}
	return r.save(ctx, stepSave)
}

// finish does everything that comes after the effect.
func (r *run[S]) finish(ctx context.Context) error {
	for _, step := range []func(context.Context) error{r.issue, r.dispatch, r.remember, r.sweep, r.clear} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// pending is the entry of the message in the outbox, nil where there is none.
func (r *run[S]) pending() *Pending { return r.e.Outbox.find(r.consumer, r.key) }

// done tells a test that a step was done.
func (r *run[S]) done(ctx context.Context, step Step) error {
	if r.c.After == nil {
		return nil
	}
	return r.c.After(ctx, r.m, step)
}

// fail makes an outage of an error.
func (r *run[S]) fail(what string, err error) error {
	return setback(fmt.Errorf("dedup: %s, message %s of entity %q: %w", what, r.key, r.entity, err))
}

func (r *run[S]) load(ctx context.Context) (err error) {
	if r.e, err = r.c.Entities.Load(ctx, r.entity); err != nil {
		return r.fail("load the entity", err)
	}
	return r.done(ctx, stepLoad)
}

// check asks the memory for a message that the outbox does not know.
func (r *run[S]) check(ctx context.Context) (duplicate bool, err error) {
	if r.c.byToken() {
		var there bool
		there, err = r.c.Tokens.Exists(ctx, Token{r.consumer, r.token})
		duplicate = !there
	} else {
		duplicate, err = r.c.Store.Contains(ctx, r.consumer, r.key)
	}
	if err != nil {
		return false, r.fail("ask whether it was handled", err)
	}
	return duplicate, r.done(ctx, stepCheck)
}

// handle changes the state in memory, and puts the message and what it causes into the outbox.
func (r *run[S]) handle(ctx context.Context) error {
	outgoing, err := r.c.Handle(ctx, &r.e.State, r.m)
	if err != nil {
		return err
	}
	if ctx.Err() != nil { // it took too long: that is an attempt, whatever save would make of it
		return context.Cause(ctx)
	}
	outgoing = slices.Clone(outgoing) // the caller's own is not touched
	if err := r.identify(outgoing); err != nil {
		return err
	}
	pending := Pending{Consumer: r.consumer, Key: r.key, Token: r.token, Phase: Ready, Outgoing: outgoing}
	if err := r.draw(&pending); err != nil {
		return err
	}
	r.e.Outbox.Pending = append(slices.Clone(r.e.Outbox.Pending), pending)
	return r.done(ctx, stepHandle)
}

// identify gives ids to messages that have none, and reports what cannot be sent.
func (r *run[S]) identify(outgoing []Outgoing) (err error) {
	if len(outgoing) > 0 && r.c.Dispatch == nil {
		return inbox.Permanent(errors.New("dedup: the handler returns messages to send, and Config.Dispatch is missing"))
	}
	for i := range outgoing {
		o := &outgoing[i]
		o.Token = ""
		if len(o.Receivers) > 0 && r.c.Tokens == nil {
			return inbox.Permanent(fmt.Errorf("dedup: outgoing message %d for %q names receivers of a token, and Config.Tokens is missing", i, o.Destination))
		}
		for _, receiver := range o.Receivers {
			if err := ValidateConsumer(receiver); err != nil {
				return inbox.Permanent(fmt.Errorf("outgoing message %d for %q: %w", i, o.Destination, err))
			}
		}
		if o.ID == uuid.Nil {
			if o.ID, err = r.p.fresh(); err != nil {
				return r.fail("draw a message id", err)
			}
		}
	}
	return nil
}

// draw makes fresh tokens this run's own.
func (r *run[S]) draw(pending *Pending) error {
	if err := pending.draw(r.p.fresh); err != nil {
		return r.fail("draw tokens", err)
	}
	r.own, r.created = pending.tokens(), false
	return nil
}

// save writes the entity, if it is still the one that was loaded.
func (r *run[S]) save(ctx context.Context, step Step) error {
	version, err := r.c.Entities.Save(ctx, r.entity, r.e)
	if errors.Is(err, ErrConflict) {
		return conflict{err}
	}
	if err != nil {
		return r.fail("save the entity", err)
	}
	if version == "" || version == r.e.Version {
		return r.fail("save the entity", fmt.Errorf("its Save returns version %q after version %q: it must be another one", version, r.e.Version))
	}
	r.e.Version = version
	return r.done(ctx, step)
}
