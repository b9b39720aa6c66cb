package dedup

import (
	"context"
	"errors"
	"slices"
)

// errNoTokens is met where a configuration is changed while messages are claimed.
var errNoTokens = errors.New("the outbox of the entity has tokens, and Config.Tokens is missing: give it back until all that is pending is finished")

// issue creates the tokens of the outgoing messages, and has it saved that they were created.
func (r *run[S]) issue(ctx context.Context) error {
	if r.pending().Phase == Ready {
		return nil
	}
	if r.c.Tokens == nil {
		return r.fail("create tokens", errNoTokens)
	}
	if err := r.redraw(ctx); err != nil {
		return err
	}
	if err := r.create(ctx); err != nil {
		return err
	}
	return r.ready(ctx)
}

// redraw replaces tokens that another process has drawn: they may have been created, sent and used
// up since the entity was loaded, or be created at any time. To create them once more would let a
// copy of their message through.
func (r *run[S]) redraw(ctx context.Context) error {
	pending := r.pending()
	if slices.Equal(r.own, pending.tokens()) {
		return nil
	}
	if err := r.draw(pending); err != nil {
		return err
	}
	return r.save(ctx, stepRedraw)
}

// create creates this run's own tokens. Nothing else does.
func (r *run[S]) create(ctx context.Context) error {
	if r.created {
		return nil
	}
	if err := r.c.Tokens.Create(ctx, r.own, r.c.Now()); err != nil {
		return r.fail("create tokens", err)
	}
	r.created = true
	return r.done(ctx, stepCreate)
}

// ready settles which tokens travel.
func (r *run[S]) ready(ctx context.Context) error {
	r.pending().Phase = Ready
	return r.save(ctx, stepReady)
}

// dispatch sends what is in the outbox, once for each run.
func (r *run[S]) dispatch(ctx context.Context) error {
	outgoing := r.pending().Outgoing
	if r.dispatched || len(outgoing) == 0 {
		return nil
	}
	if err := r.c.Dispatch.Dispatch(ctx, slices.Clone(outgoing)); err != nil {
		return r.fail("dispatch", err)
	}
	r.dispatched = true
	return r.done(ctx, stepDispatch)
}

// remember makes a later copy a duplicate.
func (r *run[S]) remember(ctx context.Context) (err error) {
	if r.remembered {
		return nil
	}
	if r.c.byToken() {
		err = r.c.Tokens.Remove(ctx, []Token{{r.consumer, r.token}})
	} else {
		err = r.c.Store.Add(ctx, r.consumer, r.key, r.c.Now())
	}
	if err != nil {
		return r.fail("remember", err)
	}
	r.remembered = true
	return r.done(ctx, stepRemember)
}

// sweep removes tokens that were drawn in vain.
func (r *run[S]) sweep(ctx context.Context) error {
	replaced := r.pending().Replaced
	if len(replaced) == 0 {
		return nil
	}
	if r.c.Tokens == nil {
		return r.fail("remove tokens that were not sent", errNoTokens)
	}
	if err := r.c.Tokens.Remove(ctx, replaced); err != nil {
		return r.fail("remove tokens that were not sent", err)
	}
	return r.done(ctx, stepSweep)
}

// clear forgets the message: the memory has it.
func (r *run[S]) clear(ctx context.Context) error {
	r.e.Outbox.remove(r.consumer, r.key)
	return r.save(ctx, stepClear)
}
