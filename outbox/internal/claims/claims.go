// Package claims is the way of a claim: it reads what package core decides about from a store, and
// has the store write what was decided. What was read may have changed by then; the store tests
// that, and the claim is made anew.
package claims

import (
	"context"
	"errors"

	"github.com/gorm-fanout/fanout/outbox/driver"
	"github.com/gorm-fanout/fanout/outbox/internal/core"
)

// A Store is a table as claims use it.
type Store interface {
	// Exchange completes an earlier claim, and takes the head of a shard where every row of the
	// window can be taken as it stands; where that is not so, or where the claim wakes and blocks
	// are due, it takes nothing and returns what the decision needs.
	Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (Answer, error)
	// Window reads the head of a shard.
	Window(ctx context.Context, claim *driver.Claim) (driver.Window, error)
	// Take claims rows of a window, all or none, or returns ErrConflict.
	Take(ctx context.Context, claim *driver.Claim, choice *driver.Choice) (driver.Batch, error)
	// Defer takes rows out of the way of claims and returns how many, or ErrConflict.
	Defer(ctx context.Context, deferral *driver.Deferral) (int, error)
	// Lift brings deferred rows back, or returns ErrConflict.
	Lift(ctx context.Context, lift *driver.Lift) error
}

// ErrConflict says that what was read has changed: nothing was done.
var ErrConflict = errors.New("outbox: what was decided about has changed meanwhile")

// An Answer to an exchange.
type Answer struct {
	driver.Exchanged

	// Window is what a decision needs where nothing was taken; nil where none is needed.
	Window *driver.Window
	// Blocks that may be lifted, as of LiftVersion; only of a claim that wakes.
	Blocks      []driver.BlockState
	LiftVersion int64
}

// maxTries bounds how often a decision is made anew that a conflict has made void.
const maxTries = 3

// Exchange completes and claims.
func Exchange(ctx context.Context, s Store, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	answer, err := s.Exchange(ctx, completion, claim)
	completed := answer.Completed
	if claim != nil {
		for try := 1; err == nil; try++ {
			var again bool
			if again, err = step(ctx, s, claim, &answer); !again || err != nil {
				break
			}
			if try == maxTries { // others are at work here
				answer.Batch = driver.Batch{Busy: true}
				break
			}
			lean := *claim
			lean.Wake = false
			answer, err = s.Exchange(ctx, nil, &lean)
		}
	}
	if err != nil {
		answer.Batch = driver.Batch{}
	}
	return driver.Exchanged{Completed: completed, Batch: answer.Batch}, err
}

// step does what an answer asks for. again says that the claim is to be made anew.
func step(ctx context.Context, s Store, claim *driver.Claim, answer *Answer) (again bool, err error) {
	limits := core.Limits{Rows: claim.Limit, Bytes: int64(claim.Bytes), Unordered: claim.Unordered}
	lift := core.Lift(answer.Blocks, core.MaxFollowers)
	if core.Nothing(&lift) {
		return take(ctx, s, claim, answer, limits)
	}
	lift.Broker, lift.Shard, lift.Version = claim.Broker, claim.Shard, answer.LiftVersion
	// What can be taken as it stands has no block, and need not wait for those that are lifted.
	simple := answer.Window != nil && len(answer.Window.Rows) > 0 && core.Simple(answer.Window, limits)
	if simple {
		again, err = take(ctx, s, claim, answer, limits)
	}
	if err != nil {
		return again, err
	}
	err = s.Lift(ctx, &lift)
	// On a conflict, who was first has lifted them. Another error is met again by the next claim,
	// and must not hide what was taken.
	if taken := len(answer.Batch.Messages) > 0; errors.Is(err, ErrConflict) || taken {
		return again || !taken && !simple, nil
	}
	return again || !simple, err
}

// take claims what was decided about a window, where the answer has one.
func take(ctx context.Context, s Store, claim *driver.Claim, answer *Answer, limits core.Limits) (again bool, err error) {
	if answer.Window == nil {
		return false, nil
	}
	d := core.Claim(answer.Window, limits)
	batch, waiting := &answer.Batch, answer.Batch.Waiting
	if len(d.Take) > 0 {
		*batch, err = s.Take(ctx, claim, &driver.Choice{Version: answer.Window.Version, IDs: d.Take})
		if errors.Is(err, ErrConflict) {
			return true, nil
		}
	}
	batch.Seen, batch.Cut, batch.Blocked, batch.AheadWaits = len(answer.Window.Rows), d.Cut, answer.Window.Blocked, d.AheadWaits
	batch.Waiting = max(waiting, d.Waiting)
	return false, err
}

// Defer takes what waits at the head of a shard out of the way of claims.
func Defer(ctx context.Context, s Store, claim *driver.Claim) (deferred int, err error) {
	for range maxTries {
		var w driver.Window
		if w, err = s.Window(ctx, claim); err != nil {
			return 0, err
		}
		d := driver.Deferral{Broker: claim.Broker, Shard: claim.Shard, Version: w.Version, Unordered: claim.Unordered}
		if d.Blocks, d.Rows = core.Defer(&w, claim.Unordered); len(d.Rows) == 0 {
			return 0, nil
		}
		if deferred, err = s.Defer(ctx, &d); !errors.Is(err, ErrConflict) {
			return deferred, err
		}
	}
	return 0, nil // others are at work here
}
