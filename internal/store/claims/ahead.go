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
		w, err := s.Window(ctx, &next)
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
			if conflicts++; conflicts == maxTries {
				exchanged.Batch = driver.Batch{Busy: true}
				return exchanged, nil
			}
		}
	}
}
