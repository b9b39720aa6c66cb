package dedup

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/inbox"
)

// What the order of the steps is good for: each of these is another order, or leaves something out,
// and something goes wrong that the exploration finds.

func checkBeforeLoad(ctx context.Context, r *run[ledger]) (inbox.Outcome, error) {
	done, err := r.check(ctx)
	if err != nil {
		return "", err
	}
	if err := r.load(ctx); err != nil {
		return "", err
	}
	if r.pending() == nil {
		if r.known {
			return inbox.Handled, nil
		}
		if done {
			return inbox.Duplicate, nil
		}
		if err := r.take(ctx); err != nil {
			return "", err
		}
	}
	r.known = true
	return inbox.Handled, r.finish(ctx)
}

// inOrder is once with other ways to take a message and to finish it.
func inOrder(take, finish func(r *run[ledger]) []func(context.Context) error) variant {
	return func(ctx context.Context, r *run[ledger]) (inbox.Outcome, error) {
		if err := r.load(ctx); err != nil {
			return "", err
		}
		var steps []func(context.Context) error
		if r.pending() == nil {
			if r.known {
				return inbox.Handled, nil
			}
			if done, err := r.check(ctx); done || err != nil {
				return inbox.Duplicate, err
			}
			steps = take(r)
		}
		for _, step := range steps {
			if err := step(ctx); err != nil {
				return "", err
			}
		}
		r.known = true
		for _, step := range finish(r) {
			if err := step(ctx); err != nil {
				return "", err
			}
		}
		return inbox.Handled, nil
	}
}

type order = []func(context.Context) error

func taken(r *run[ledger]) order { return order{r.take} }

func finished(r *run[ledger]) order {
	return order{r.issue, r.dispatch, r.remember, r.sweep, r.clear}
}

// unlessReady skips steps once the outgoing messages are ready.
func unlessReady(r *run[ledger], steps ...func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if r.pending().Phase == Ready {
			return nil
		}
		for _, step := range steps {
			if err := step(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

// createWhatIsThere creates the tokens of the outbox, whoever has drawn them.
func createWhatIsThere(r *run[ledger]) func(context.Context) error {
	return func(ctx context.Context) error { return r.c.Tokens.Create(ctx, r.pending().tokens(), r.c.Now()) }
}

var (
	clearBeforeRemember = inOrder(taken, func(r *run[ledger]) order {
		return order{r.issue, r.dispatch, r.sweep, r.clear, r.remember}
	})
	createBeforeSave = inOrder(func(r *run[ledger]) order {
		return order{r.handle, r.create, r.ready}
	}, finished)
	createAgain = inOrder(taken, func(r *run[ledger]) order {
		return order{unlessReady(r, createWhatIsThere(r), r.ready), r.dispatch, r.remember, r.sweep, r.clear}
	})
	createAfterDispatch = inOrder(taken, func(r *run[ledger]) order {
		return order{unlessReady(r, r.redraw, r.dispatch, r.create, r.ready), r.dispatch, r.remember, r.sweep, r.clear}
	})
	dispatchBeforeReady = inOrder(taken, func(r *run[ledger]) order {
		return order{unlessReady(r, r.redraw, r.create, r.dispatch, r.ready), r.dispatch, r.remember, r.sweep, r.clear}
	})
	dispatchBeforeSave = inOrder(func(r *run[ledger]) order {
		return order{r.handle, r.dispatch, func(ctx context.Context) error { return r.save(ctx, StepSave) }}
	}, finished)
	withoutSweep = inOrder(taken, func(r *run[ledger]) order {
		return order{r.issue, r.dispatch, r.remember, r.clear}
	})
	rememberBeforeSave = inOrder(func(r *run[ledger]) order {
		return order{r.handle, r.remember, func(ctx context.Context) error { return r.save(ctx, StepSave) }}
	}, finished)
)

func TestOtherOrdersFail(t *testing.T) {
	t.Parallel()
	const twice, twiceDownstream, lost = "message 0 took effect 2 times", "what message 0 caused took effect 2 times", "took effect 0 times"
	const dropped = "what message 0 caused was taken for a copy"
	for name, c := range map[string]struct {
		once            variant
		byToken         bool
		copies, crashes int
		want            string
	}{
		"check before load":                     {checkBeforeLoad, false, 2, 0, twice},
		"check before load, tokens":             {checkBeforeLoad, true, 2, 0, twice},
		"clear before remember":                 {clearBeforeRemember, false, 1, 1, twice},
		"clear before remember, tokens":         {clearBeforeRemember, true, 1, 1, twice},
		"clear before remember, without crash":  {clearBeforeRemember, false, 2, 0, twice},
		"tokens created before they are saved":  {createBeforeSave, true, 1, 1, "a token is left that nobody knows of"},
		"tokens created by more than one":       {createAgain, true, 2, 0, twiceDownstream},
		"tokens created again after a crash":    {createAgain, true, 1, 1, ""}, // it takes two at a time
		"tokens created after dispatch":         {createAfterDispatch, true, 1, 0, dropped},
		"dispatch before the tokens are ready":  {dispatchBeforeReady, true, 1, 1, twiceDownstream},
		"dispatch before the state is saved":    {dispatchBeforeSave, false, 1, 1, "two ids"},
		"remember before the state is saved":    {rememberBeforeSave, false, 1, 1, lost},
		"tokens drawn in vain are not removed":  {withoutSweep, true, 1, 1, "a token is left that nobody knows of"},
		"the same steps, called one by one":     {inOrder(taken, finished), true, 2, 1, ""},
		"the same steps, without tokens":        {inOrder(taken, finished), false, 2, 1, ""},
		"the order of this package, for a test": {nil, true, 2, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := &explorer{sequential: c.copies == 1, begin: func() *system { return begin(c.byToken, 1, c.copies, c.crashes, 0, c.once) }}
			violation := x.explore()
			t.Logf("%d situations: %s %v", len(x.visited), violation, x.path)
			if c.want == "" {
				require.Empty(t, violation)
				return
			}
			require.Contains(t, violation, c.want)
		})
	}
}
