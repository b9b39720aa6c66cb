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
	"time"

	"github.com/gorm-fanout/fanout/internal/core"
	"github.com/gorm-fanout/fanout/internal/store/contention"
	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// A Store is a table as claims use it. Its methods are safe for concurrent use, and compare times by
// the database's clock alone.
type Store interface {
	// Exchange completes an earlier claim and reads the head of a shard; either part may be nil. It
	// may take the rows at once where every row of the window can go unchanged: none waits, is
	// held, has a crash behind it or stands behind a block, and all of them are within the claim's
	// limits. Else, and where the claim wakes and blocks are
	// due, it takes nothing and returns what the decision needs. As in [driver.Delivery.Exchange],
	// the completion stands by itself: where the claim fails, Completed is returned with the error.
	// Where another session has locked a row of the completion it returns ErrLocked, without waiting
	// for it, and has changed nothing.
	Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (Answer, error)
	// Window reads the first open rows of a shard that are not deferred, claim.Window of them at
	// most, and the version of the shard no later than these. Of the claim, Broker, Shard, Window
	// and Unordered count, and Ahead: then it leaves out what cannot go, as [driver.Claim] says.
	Window(ctx context.Context, claim *driver.Claim) (driver.Window, error)
	// Take claims the rows of a choice, all or none, under a token of its own and with
	// claim.Lease. It returns ErrConflict, and changes nothing, where the shard has another version
	// or one of the rows cannot be claimed any more; ErrLocked, and changes nothing, where another
	// session has locked one of them.
	Take(ctx context.Context, claim *driver.Claim, choice *driver.Choice) (driver.Batch, error)
	// Defer takes rows out of the way of claims and returns how many. It returns ErrConflict, and
	// changes nothing, where the shard has another version, and ErrLocked where another session has
	// locked one of them; rows that have changed meanwhile are left out.
	Defer(ctx context.Context, deferral *driver.Deferral) (int, error)
	// Lift brings deferred rows back. It returns ErrConflict, and changes nothing, where the shard
	// has another version, and ErrLocked where another session has locked one of them.
	Lift(ctx context.Context, lift *driver.Lift) error
}

// A Prober is a store that can tell which rows other sessions have locked, where sessions lock rows.
type Prober interface {
	// Locked returns those of the rows that another session has locked, and which session that is for
	// the first of them, for people, "" where that is not known. It waits for none and keeps nothing
	// locked.
	Locked(ctx context.Context, broker string, rows []driver.Ref) (locked []driver.Ref, by string, err error)
}

// ErrConflict says that what was read has changed: nothing was done.
var ErrConflict = errors.New("outbox: what was decided about has changed meanwhile")

// ErrLocked says that another session has locked a row that was to be changed: nothing was done. A
// claim goes on around what is locked.
var ErrLocked = driver.ErrLocked

// An Answer to an exchange.
type Answer struct {
	// Exchanged is what was completed, and what was taken where no decision was needed. Of its
	// batch, Blocked is set in any case, and Busy where another process holds the shard.
	driver.Exchanged

	// Window is what a decision needs where nothing was taken; nil where none is needed.
	Window *driver.Window
	// AroundLocked says that other sessions have locked rows of the window, so that they are to be
	// gone around as if the claim had said so.
	AroundLocked bool
	// Blocks that may be lifted, as of LiftVersion; only of a claim that wakes. They are at most
	// [driver.MaxBlocks], and as many scheduled rows as the claim admits; each block with at most [driver.MaxFollowers] followers, and these for the first
	// [driver.MaxDone] blocks that are done.
	Blocks      []driver.BlockState
	LiftVersion int64
}

// maxTries bounds how often a decision is made anew that a conflict has made void.
const maxTries = 3

// briefly is how long a completion is tried again that meets locked rows: most sessions, such as a claim
// that passes over the rows, are done by then. The relay holds the others back.
const briefly = 200 * time.Millisecond

// Exchange completes and claims, as [driver.Delivery.Exchange] says. A decision that a conflict has
// made void is made again, a few times; the batch is Busy then.
func Exchange(ctx context.Context, s Store, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	if claim != nil && claim.Ahead > 0 && !claim.Unordered {
		return lookAhead(ctx, s, completion, claim)
	}
	var answer Answer
	err := contention.Retry(ctx, briefly, func(err error) contention.Cause {
		if completion != nil && answer.Completed == nil && errors.Is(err, ErrLocked) {
			return contention.Locked
		}
		return contention.None
	}, func() (err error) {
		answer, err = s.Exchange(ctx, completion, claim)
		return err
	})
	completed := answer.Completed
	var blocks lockedBlocks
	if claim != nil && err == nil {
		err = decide(ctx, s, claim, &answer, &blocks)
	}
	if blocks.rows > 0 {
		answer.Batch.Locked += blocks.rows
		answer.Batch.LockedBy = blocks.by
	}
	if err != nil {
		answer.Batch = driver.Batch{}
	}
	return driver.Exchanged{Completed: completed, Batch: answer.Batch}, err
}

// decide does what an answer asks for, again and again while that is void.
func decide(ctx context.Context, s Store, claim *driver.Claim, answer *Answer, blocks *lockedBlocks) error {
	conflicts, began := 0, time.Now()
	for try := 1; ; try++ {
		next := *claim
		next.AroundLocked = claim.AroundLocked || answer.AroundLocked
		void, err := step(ctx, s, &next, answer, blocks)
		if void == nil || err != nil {
			return err
		}
		if errors.Is(void, ErrLocked) {
			// By a session that was faster. If that goes on, it is no row that can be gone around.
			if err := contention.Pause(ctx, began, try, void); err != nil {
				return err
			}
		} else if conflicts++; conflicts == maxTries { // others are at work here
			answer.Batch = driver.Batch{Busy: true}
			return nil
		}
		next.Wake, next.AroundLocked = false, next.AroundLocked || errors.Is(void, ErrLocked)
		claim = &next
		if *answer, err = s.Exchange(ctx, nil, claim); err != nil {
			return err
		}
	}
}

// step does what an answer asks for. void says why the claim is to be made anew.
func step(ctx context.Context, s Store, claim *driver.Claim, answer *Answer, seen *lockedBlocks) (void, err error) {
	limits := limitsOf(claim)
	blocks := liftable(answer.Blocks)
	if len(blocks) == 0 {
		return take(ctx, s, claim, answer, limits)
	}
	// What can be taken unchanged has no block, and need not wait for those that are lifted.
	simple := answer.Window != nil && len(answer.Window.Rows) > 0 && core.Simple(answer.Window, limits)
	if simple {
		void, err = take(ctx, s, claim, answer, limits)
	}
	if err != nil {
		return void, err
	}
	err = lift(ctx, s, claim, answer.LiftVersion, blocks, seen)
	// On a conflict, who was first has lifted them. Another error is met again by the next claim,
	// and must not hide what was taken.
	taken := len(answer.Batch.Messages) > 0
	again := errors.Is(err, ErrConflict) || errors.Is(err, ErrLocked)
	if void == nil && !taken && !simple && (err == nil || again) {
		void = errLifted
	}
	if again || taken {
		err = nil
	}
	return void, err
}

func limitsOf(claim *driver.Claim) core.Limits {
	return core.Limits{Rows: claim.Limit, Bytes: int64(claim.Bytes), PerKey: claim.PerKey, Unordered: claim.Unordered}
}

// errLifted says that a window was read before blocks were lifted.
var errLifted = errors.New("blocks were lifted")

// take claims what was decided about a window, where the answer has one.
func take(ctx context.Context, s Store, claim *driver.Claim, answer *Answer, limits core.Limits) (void, err error) {
	if answer.Window == nil {
		return nil, nil
	}
	by, err := hold(ctx, s, claim, answer.Window)
	if err != nil {
		return nil, err
	}
	d := core.Claim(answer.Window, limits)
	batch, waiting := &answer.Batch, answer.Batch.Waiting
	if len(d.Take) > 0 {
		*batch, err = s.Take(ctx, claim, &driver.Choice{Version: answer.Window.Version, Rows: d.Take})
		if errors.Is(err, ErrConflict) || errors.Is(err, ErrLocked) {
			return err, nil
		}
	}
	if claim.AroundLocked {
		batch.Locked, batch.LockedBy = held(answer.Window), by
	}
	batch.Seen, batch.Cut, batch.Blocked = len(answer.Window.Rows), d.Cut, answer.Window.Blocked
	batch.Waiting = max(waiting, d.Waiting)
	return nil, err
}

// hold marks the rows of a window that other sessions have locked, where the claim goes around them and
// the store can tell. Those that are leased are held by that.
func hold(ctx context.Context, s Store, claim *driver.Claim, w *driver.Window) (by string, err error) {
	prober, ok := s.(Prober)
	if !ok || !claim.AroundLocked {
		return "", nil
	}
	var rows []driver.Ref
	for i := range w.Rows {
		if row := &w.Rows[i]; !row.Leased || !row.Waits {
			rows = append(rows, row.Ref)
		}
	}
	if len(rows) == 0 {
		return "", nil
	}
	found, by, err := prober.Locked(ctx, claim.Broker, rows)
	locked := set(found)
	for i := range w.Rows {
		w.Rows[i].Held = w.Rows[i].Held || locked[w.Rows[i].Ref]
	}
	return by, err
}

// held is how many rows of a window other sessions have locked.
func held(w *driver.Window) (n int) {
	for i := range w.Rows {
		if w.Rows[i].Held {
			n++
		}
	}
	return n
}

// Defer takes what waits at the head of a shard out of the way of claims, as [driver.Delivery.Defer]
// says.
func Defer(ctx context.Context, s Store, claim *driver.Claim) (deferred int, err error) {
	around, began := *claim, time.Now()
	for try, conflicts := 1, 0; conflicts < maxTries; try++ {
		var w driver.Window
		if w, err = s.Window(ctx, &around); err != nil {
			return 0, err
		}
		if _, err = hold(ctx, s, &around, &w); err != nil {
			return 0, err
		}
		d := driver.Deferral{Broker: claim.Broker, Shard: claim.Shard, Version: w.Version, Unordered: claim.Unordered}
		if d.Blocks, d.Rows = core.Defer(&w, claim.Unordered); len(d.Rows) == 0 {
			return 0, nil
		}
		deferred, err = s.Defer(ctx, &d)
		switch {
		case errors.Is(err, ErrLocked):
			around.AroundLocked = true
			if err = contention.Pause(ctx, began, try, err); err != nil {
				return 0, err
			}
		case errors.Is(err, ErrConflict):
			conflicts++
		default:
			return deferred, err
		}
	}
	return 0, nil // others are at work here
}
