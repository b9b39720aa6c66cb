package postgres

import (
	"context"

	"github.com/gorm-fanout/fanout/internal/store/contention"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// An id is there twice where an identity has begun anew: after a copy of the data, or setval, or
// TRUNCATE ... RESTART IDENTITY beside rows that another table keeps. Rows are therefore addressed by
// their message ids, or by an id within one claim, of which no two rows have the same.

// repeats reports whether an id is there twice among claimed rows, which are in the order of ids.
func repeats(messages []driver.Message) bool {
	for i := 1; i < len(messages); i++ {
		if messages[i].ID == messages[i-1].ID {
			return true
		}
	}
	return false
}

// decideInstead gives back the rows that a claim took as they stood, and reads the window instead: of
// rows with one id a decision takes one, and none behind a row that was passed over.
func (s *Store) decideInstead(ctx context.Context, taken *exchange) (exchange, error) {
	if err := s.giveBack(ctx, &taken.answer.Batch); err != nil {
		return *taken, err
	}
	x := exchange{store: s, claim: taken.claim, baseline: taken.baseline}
	x.answer.Completed, x.answer.Blocks, x.answer.LiftVersion = taken.answer.Completed, taken.answer.Blocks, taken.answer.LiftVersion
	err := x.run(ctx)
	x.wasSimple = false
	return x, err
}

// giveBack releases claimed rows of which none was sent.
func (s *Store) giveBack(ctx context.Context, batch *driver.Batch) error {
	back := driver.Completion{Lease: batch.Lease}
	for i := range batch.Messages {
		status := outbox.StatusPending
		if batch.Messages[i].Attempts > 0 {
			status = outbox.StatusFailed
		}
		back.Other = append(back.Other, driver.Outcome{ID: batch.Messages[i].ID, Status: status})
	}
	return contention.Retry(ctx, s.patience, brokenOff, func() error {
		x := exchange{store: s, completion: &back}
		return x.run(ctx)
	})
}
