package sqlserver

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"time"
)

// releaseTimeout bounds giving back a lock. The connection is closed when that fails, and the lock
// goes with it.
const releaseTimeout = 5 * time.Second

// errOneConnection refuses a pool whose only connection would hold the lock of a purge, which then
// waits for another one forever. A database handle of Go makes no connections beside its pool.
var errOneConnection = errors.New("the pool may open one connection, a purge needs two: call SetMaxOpenConns with 2 or more, " +
	"better with a connection for each worker and two more")

// wide refuses a pool that is too small.
func (s *Store) wide() error {
	if s.db.Stats().MaxOpenConnections == 1 {
		return errOneConnection
	}
	return nil
}

// Exclusive implements admin.Administration with a lock that belongs to a session: f runs outside
// any transaction, and a process that dies lets go. The session's connection is kept until f
// returns; f uses others of the pool, and a pool that may have no others is refused.
func (s *Store) Exclusive(ctx context.Context, name string, f func(context.Context) error) (ran bool, err error) {
	if err := s.wide(); err != nil {
		return false, fmt.Errorf("sqlserver: run %q exclusively on %s: %w", name, s.table, err)
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return false, fmt.Errorf("sqlserver: connect to run %q exclusively on %s: %w", name, s.table, err)
	}
	defer func() { _ = conn.Close() }() // it goes back into the pool, or is closed already
	lock := s.lockName(name)
	granted, err := s.applock(ctx, conn, s.sql.exclusive, lock)
	switch {
	case err != nil:
		discard(conn) // whether the lock was taken is not known
		return false, fmt.Errorf("sqlserver: take the lock to run %q exclusively on %s: %w", name, s.table, explain(err))
	case granted < 0:
		return false, nil
	}
	defer func() {
		// The lock is given back also when the caller's context has ended, or f panics.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		if released, err := s.applock(ctx, conn, s.sql.release, lock); err != nil || released < 0 {
			discard(conn)
		}
	}()
	return true, f(ctx)
}

// lockBusy is sp_getapplock's way to say that another process holds the lock; lower numbers are
// errors.
const lockBusy = -1

func (s *Store) applock(ctx context.Context, conn *sql.Conn, text, lock string) (int, error) {
	granted, answered := 0, false
	err := queryOn(ctx, conn, text, []any{sql.Named("lock", lock)}, resultSets{
		"fanout_granted": func(rows *sql.Rows) error { answered = true; return rows.Scan(&granted) },
	})
	switch {
	case err != nil:
		return 0, err
	case !answered:
		return 0, errIncomplete
	case granted < lockBusy:
		return 0, fmt.Errorf("sp_getapplock returned %d", granted)
	}
	return granted, nil
}

// discard takes a connection out of the pool.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
}
