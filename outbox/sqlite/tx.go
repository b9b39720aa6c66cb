package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/internal/dbtable"
	"github.com/gorm-fanout/fanout/internal/failure"
	"github.com/gorm-fanout/fanout/outbox"
)

// How long a statement waits for a lock where the DSN's own busy timeout is shorter.
const (
	busyPatience = 5 * time.Second
	busyPause    = time.Millisecond
)

// write runs f in a transaction that holds the database's write lock from its first statement.
// database/sql cannot say BEGIN IMMEDIATE, so the transaction is run by hand on a connection of its
// own, which never goes back into the pool in the middle of one: whatever goes wrong, the
// transaction is rolled back, also when ctx has ended, and a connection on which that fails is
// closed.
func (s *Store) write(ctx context.Context, f func(conn *sql.Conn) error) error {
	if err := s.turns.enter(ctx); err != nil { // before a connection is taken, which others may need
		return err
	}
	defer s.turns.leave()
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close() // it goes back into the pool
	committed := false
	defer func() {
		if !committed { // also when BEGIN failed: a cancelled one may have been done
			rollback(ctx, conn)
		}
	}()
	if err := s.patiently(ctx, func() error { _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); return err }); err != nil {
		return explain(err)
	}
	defer s.turns.held(s.turns.now())
	if err := s.turns.meet(ctx, conn); err != nil {
		return explain(err)
	}
	if err := f(conn); err != nil {
		return explain(err)
	}
	// A commit is not given up half way: its outcome would be unknown.
	commit := context.WithoutCancel(ctx)
	err = s.patiently(commit, func() error { _, err := conn.ExecContext(commit, "COMMIT"); return err })
	committed = err == nil
	return explain(err)
}

func rollback(ctx context.Context, conn *sql.Conn) {
	_, err := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
	if err != nil && !strings.Contains(err.Error(), "no transaction is active") {
		_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
	}
}

// patiently repeats f while another connection has locked the database.
func (s *Store) patiently(ctx context.Context, f func() error) error {
	start := time.Now()
	for pause := busyPause; ; pause = min(2*pause, 20*busyPause) {
		err := f()
		if err == nil || !isBusy(err) || time.Since(start) >= s.patience {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// read runs one query outside of any transaction and calls f for each of its rows. It waits for its
// turn, which ends with the first row.
func (s *Store) read(ctx context.Context, f func(*sql.Rows) error, text string, args ...any) error {
	begun := false
	var failed error
	err := s.patiently(ctx, func() error {
		rows, err := s.db.QueryContext(ctx, text, args...)
		if err == nil {
			err = each(rows, func(rows *sql.Rows) error { begun = true; return f(rows) })
		}
		if begun { // a row that was handed out is not handed out again
			failed = err
			return nil
		}
		return err
	})
	return explain(cmp.Or(err, failed))
}

// each calls f for each row and closes the rows.
func each(rows *sql.Rows, f func(*sql.Rows) error) error {
	defer rows.Close() // Err tells
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// isBusy reports SQLITE_BUSY and SQLITE_LOCKED. The drivers' error types differ, but most tell
// SQLite's code, and all of them its words.
func isBusy(err error) bool {
	var coded interface{ Code() int }
	if errors.As(err, &coded) {
		primary := coded.Code() & 0xff
		return primary == 5 || primary == 6
	}
	return strings.Contains(err.Error(), "database is locked") || strings.Contains(err.Error(), "table is locked")
}

// explain adds the remedy to errors that an operator can act on.
func explain(err error) error {
	if err != nil && isBusy(err) {
		return failure.Advise(err, "another connection holds the lock for long; set a busy timeout and a write-ahead log in the DSN")
	}
	return dbtable.Explain(err, outbox.ErrSchema)
}
