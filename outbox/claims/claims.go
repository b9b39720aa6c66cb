// Package claims is the half of a store that is the same on every database. It decides which rows a
// claim takes, which are deferred and what a key block lets through; a store reads what the decision
// needs and writes what was decided.
//
// The author of a store implements [Store], five methods of a few plain statements each, and builds
// [driver.Delivery.Exchange] and [driver.Delivery.Defer] from [Exchange] and [Defer] here. Nothing
// is locked while a decision is made: each shard has a version, a window is read together with it,
// and a statement that writes changes nothing, and returns [ErrConflict], unless the version is
// still the same; the decision is made anew then. Package storetest checks the result.
package claims

import (
	"context"
	"errors"

	"github.com/gorm-fanout/fanout/outbox/driver"
	"github.com/gorm-fanout/fanout/outbox/internal/core"
)

// A Store is a table as claims use it. Its methods are safe for concurrent use, and compare times by
// the database's clock alone.
type Store interface {
	// Exchange completes an earlier claim and reads the head of a shard; either part may be nil. It
	// may take the rows at once where every row of the window can go as it stands: none waits, is
	// held, has a crash behind it, stands behind a block or behind rows of another priority class,
	// and all of them are within the claim's limits. Else, and where the claim wakes and blocks are
	// due, it takes nothing and returns what the decision needs. As in [driver.Delivery.Exchange],
	// the completion stands by itself: where the claim fails, Completed is returned with the error.
	Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (Answer, error)
	// Window reads the first open rows of a shard that are not deferred, claim.Window of them at
	// most, and the version of the shard no later than these. Of the claim, Broker, Shard, Window
	// and Unordered count.
	Window(ctx context.Context, claim *driver.Claim) (driver.Window, error)
	// Take claims the rows of a choice, all or none, under a token of its own and with
	// claim.Lease. It returns ErrConflict, and changes nothing, where the shard has another version
	// or one of the rows cannot be claimed any more.
	Take(ctx context.Context, claim *driver.Claim, choice *driver.Choice) (driver.Batch, error)
	// Defer takes rows out of the way of claims and returns how many. It returns ErrConflict, and
	// changes nothing, where the shard has another version; rows that have changed meanwhile are
	// left out.
	Defer(ctx context.Context, deferral *driver.Deferral) (int, error)
	// Lift brings deferred rows back. It returns ErrConflict, and changes nothing, where the shard
	// has another version.
	Lift(ctx context.Context, lift *driver.Lift) error
}

// ErrConflict says that what was read has changed: nothing was done.
var ErrConflict = errors.New("outbox: what was decided about has changed meanwhile")

// An Answer to an exchange.
type Answer struct {
	// Exchanged is what was completed, and what was taken where no decision was needed. Of its
	// batch, Blocked is set in any case, and Busy where somebody else holds the shard.
	driver.Exchanged

	// Window is what a decision needs where nothing was taken; nil where none is needed.
	Window *driver.Window
	// Blocks that may be lifted, as of LiftVersion; only of a claim that wakes. They are at most
	// [driver.MaxBlocks], each with at most [driver.MaxFollowers] followers, and these for the first
	// [driver.MaxDone] blocks that are done.
	Blocks      []driver.BlockState
	LiftVersion int64
}

// maxTries bounds how often a decision is made anew that a conflict has made void.
const maxTries = 3

// Exchange completes and claims, as [driver.Delivery.Exchange] says. A decision that a conflict has
// made void is made again, a few times; the batch is Busy then.
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
	lift := core.Lift(answer.Blocks, driver.MaxFollowers)
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
		*batch, err = s.Take(ctx, claim, &driver.Choice{Version: answer.Window.Version, Rows: d.Take})
		if errors.Is(err, ErrConflict) {
			return true, nil
		}
	}
	batch.Seen, batch.Cut, batch.Blocked, batch.AheadWaits = len(answer.Window.Rows), d.Cut, answer.Window.Blocked, d.AheadWaits
	batch.Waiting = max(waiting, d.Waiting)
	return false, err
}

// Defer takes what waits at the head of a shard out of the way of claims, as [driver.Delivery.Defer]
// says.
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
