package scenario

import (
	"context"
	"errors"
	"time"
)

// writes is how many transactions the application makes while no relay drains.
const writes = 200

// rest waits for as long as so many transactions take.
func (s *liteSetup) rest(ctx context.Context) error {
	timer := time.NewTimer(writes * s.Pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// startWriter begins to write as an application does, in small transactions of its own. What it
// returns ends that and tells how long each of them took.
func (s *liteSetup) startWriter(ctx context.Context) (stop func() ([]time.Duration, error), err error) {
	if _, err := s.lite.DB.ExecContext(ctx, "CREATE TABLE orders (id INTEGER NOT NULL PRIMARY KEY, note TEXT NOT NULL)"); err != nil {
		return nil, err
	}
	var (
		waits  []time.Duration
		failed error
		over   = make(chan struct{})
		done   = make(chan struct{})
	)
	go func() {
		defer close(done)
		ticker := time.NewTicker(s.Pause)
		defer ticker.Stop()
		for {
			select {
			case <-over:
				return
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			began := time.Now()
			if failed = s.write(ctx); failed != nil {
				return
			}
			waits = append(waits, time.Since(began))
		}
	}()
	return func() ([]time.Duration, error) {
		close(over)
		<-done
		return waits, failed
	}, nil
}

// write is one transaction of the application.
func (s *liteSetup) write(ctx context.Context) error {
	tx, err := s.lite.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (note) VALUES ('a note')"); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
