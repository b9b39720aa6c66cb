// Package contention repeats what a database has broken off because other sessions work on the same
// rows.
//
// Sessions that are not Fanout's lock rows in whatever order their plans have, so that no order of
// ours keeps them from waiting for us in a circle. A transaction of a store therefore gives way: it
// does not wait, or only briefly, for a row while it has locked others, so that the server never has
// to choose between it and an UPDATE of an operator's. It is repeated here until the row is free.
package contention

import (
	"context"
	"fmt"
	"time"

	"github.com/gorm-fanout/fanout/retry"
)

// A Cause says why a transaction was broken off.
type Cause int

// Causes.
const (
	// None: it was not broken off in favour of another one. Repeating it does not help.
	None Cause = iota
	// Lost: the server preferred another transaction, as in a deadlock, or what was decided about
	// has changed.
	Lost
	// Locked: another session has locked a row, and the transaction gave way.
	Locked
)

const (
	// Tries bounds how often a transaction is tried that loses.
	Tries = 3
	// Patience is how long stores repeat a transaction that meets locked rows.
	Patience = 10 * time.Second
)

// delays between tries. Sessions that collide must not do so again at the same instant, and a row
// that stays locked must not make a store write the rows before it again and again.
var delays = retry.Policy{BaseDelay: 4 * time.Millisecond, MaxDelay: 500 * time.Millisecond, Jitter: 0.5}

// Retry calls f until it succeeds or cause says None, for as long as Tries and patience allow. It
// returns the last error of f; where the context ended in between, together with the context's.
func Retry(ctx context.Context, patience time.Duration, cause func(error) Cause, f func() error) error {
	began := time.Now()
	for try, lost := 1, 0; ; try++ {
		err := f()
		if err == nil {
			return nil
		}
		switch cause(err) {
		case Lost:
			if lost++; lost == Tries {
				return err
			}
		case Locked:
			if time.Since(began) >= patience {
				return err
			}
		default:
			return err
		}
		if ended := sleep(ctx, try, err); ended != nil {
			return ended
		}
	}
}

// Pause waits before the next try of what met locked rows, which began then and has failed try times. It
// returns err, the last failure, where patience has run out, and together with the context's where that
// has ended.
func Pause(ctx context.Context, began time.Time, try int, err error) error {
	if time.Since(began) >= Patience {
		return err
	}
	return sleep(ctx, try, err)
}

func sleep(ctx context.Context, try int, err error) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", err, ctx.Err())
	case <-time.After(delays.Delay(try)):
		return nil
	}
}
