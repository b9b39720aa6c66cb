package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// exclusiveFor is how long a lock outlives the process that held it; who lives renews it three
// times as often.
const exclusiveFor = time.Minute

// errTakenOver ends a run whose lock could not be renewed in time.
var errTakenOver = errors.New("sqlite: the exclusive lock was taken over by another process")

// Exclusive implements admin.Administration with a row that names the holder, since SQLite has no
// locks but that of the writer. The context of f ends when the lock is lost, which takes a database
// that cannot be written for a minute.
func (s *Store) Exclusive(ctx context.Context, name string, f func(context.Context) error) (ran bool, err error) {
	id, err := uuid.NewRandom()
	if err != nil {
		return false, fmt.Errorf("sqlite: make a token: %w", err)
	}
	lock := heldLock{store: s, name: name, token: id.String()}
	ran, err = lock.change(ctx, s.sql.lock)
	if err != nil {
		return false, fmt.Errorf("sqlite: take the lock %q of %s: %w", name, s.table, err)
	}
	if !ran {
		return false, nil
	}
	defer func() {
		_, release := lock.change(context.WithoutCancel(ctx), s.sql.unlock) // it is given back even when ctx has ended
		if err == nil && release != nil {
			err = fmt.Errorf("sqlite: give back the lock %q of %s: %w", name, s.table, release)
		}
	}()
	running, cancel := context.WithCancelCause(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		lock.keep(running, cancel)
	}()
	defer func() {
		cancel(nil)
		<-kept
	}()
	return true, f(running)
}

// heldLock is a lock in the hands of one run.
type heldLock struct {
	store       *Store
	name, token string
}

// change runs one of the lock's statements and reports whether it changed the lock.
func (l heldLock) change(ctx context.Context, text string) (bool, error) {
	var n int64
	err := l.store.write(ctx, func(conn *sql.Conn) error {
		now := l.store.micros()
		result, err := conn.ExecContext(ctx, text, sql.Named("name", l.name), sql.Named("token", l.token),
			sql.Named("now", now), sql.Named("until", now+exclusiveFor.Microseconds()))
		if err != nil {
			return err
		}
		n, err = result.RowsAffected()
		return err
	})
	return n > 0, err
}

// keep renews the lock until ctx ends, and ends ctx when the lock is lost.
func (l heldLock) keep(ctx context.Context, cancel context.CancelCauseFunc) {
	ticker := time.NewTicker(exclusiveFor / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if kept, err := l.change(ctx, l.store.sql.keep); err == nil && !kept { // an error may pass by the next tick
			cancel(errTakenOver)
			return
		}
	}
}
