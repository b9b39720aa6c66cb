package claims

import (
	"context"
	"errors"
	"time"

	"github.com/gorm-fanout/fanout/internal/store/contention"
	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// lookAhead completes, and claims past what cannot go at the head of the shard. The rows that the store
// leaves out of the window are those that the decision would leave: what waits or is leased, and what
// is behind it of its key.
func lookAhead(ctx context.Context, s Store, completion *driver.Completion, claim *driver.Claim) (exchanged driver.Exchanged, err error) {
	if completion != nil {
		if exchanged, err = Exchange(ctx, s, completion, nil); err != nil {
			return exchanged, err
		}
	}
	next, began := *claim, time.Now()
	for try, conflicts := 1, 0; ; try++ {
		looked := time.Now()
		w, err := look(ctx, s, &next)
		took := time.Since(looked)
		if err != nil {
			return exchanged, err
		}
		answer := Answer{Window: &w}
		void, err := take(ctx, s, &next, &answer, limitsOf(&next))
		switch {
		case err != nil:
			return exchanged, err
		case void == nil:
			exchanged.Batch = answer.Batch
			return exchanged, nil
		case errors.Is(void, ErrLocked):
			next.AroundLocked = true
			if err := contention.Pause(ctx, began, try, void); err != nil {
				return exchanged, err
			}
		default:
			if conflicts++; conflicts == maxTries || patience(ctx, took) < took {
				exchanged.Batch = driver.Batch{Busy: true}
				return exchanged, nil
			}
		}
	}
}

// look reads a window. It takes half of the time that is left at most: where a claim ends while it takes
// rows, no process has these until their lease ends.
func look(ctx context.Context, s Store, claim *driver.Claim) (driver.Window, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	return s.Window(ctx, claim)
}

// patience is how long the next look may take, or most where nothing bounds it.
func patience(ctx context.Context, most time.Duration) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return time.Until(deadline) / 2
	}
	return most
}
