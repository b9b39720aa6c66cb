package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// releaseTimeout bounds giving back a lock. The connection is closed when that fails, and the lock
// goes with it.
const releaseTimeout = 5 * time.Second

// errOneConnection refuses a pool whose only connection would hold the lock of a purge, which then
// waits for another one forever.
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
// returns; f uses others of the pool, and a pool that may have no others is refused. The lock is
// that of one server: on a cluster, purge by way of one node.
func (s *Store) Exclusive(ctx context.Context, name string, f func(context.Context) error) (ran bool, err error) {
	if err := s.wide(); err != nil {
		return false, fmt.Errorf("mysql: run %q exclusively on %s: %w", name, s.table, err)
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return false, fmt.Errorf("mysql: connect to run %q exclusively on %s: %w", name, s.table, err)
	}
	defer func() { _ = conn.Close() }() // it is closed already where it was of use
	release, err := s.named(ctx, conn, "exclusive:"+name, 0)
	switch {
	case errors.Is(err, errHeld):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("mysql: take the lock to run %q exclusively on %s: %w", name, s.table, explain(err))
	}
	defer release()
	return true, f(ctx)
}

var errHeld = errors.New("another session holds the lock")

// named takes a lock of a name on a connection, and returns what gives it back, also when the
// caller's context has ended.
func (s *Store) named(ctx context.Context, conn *sql.Conn, name string, patience time.Duration) (release func(), err error) {
	given := args{"name": s.table + ":" + name, "patience": int(patience / time.Second)}
	_, err = s.exec(ctx, conn, "stay", nil)
	granted := false
	if err == nil {
		granted, err = s.granted(ctx, conn, "lock_name", given)
	}
	if err != nil {
		discard(conn) // whether the lock was taken is not known
		return nil, err
	}
	if !granted {
		discard(conn)
		return nil, errHeld
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		_, _ = s.granted(ctx, conn, "release_name", given) // the end of the session lets go, too
		discard(conn)                                      // it may say nothing for too long
	}, nil
}

func (s *Store) granted(ctx context.Context, conn *sql.Conn, name string, given args) (bool, error) {
	var granted sql.NullBool // NULL: the server failed to
	err := s.query(ctx, conn, name, given, func(scan scanner) error { return scan(&granted) })
	return granted.Bool, err
}
