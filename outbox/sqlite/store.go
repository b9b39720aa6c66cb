// Package sqlite keeps the outbox in SQLite (3.38 or later), the embedded default.
//
// The store works on a *sql.DB and links no driver: open the database with any driver for SQLite. With several
// connections to one file, set in the DSN a write-ahead log and a busy timeout; for the pure Go driver of modernc or
// glebarez that is "file.db?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)".
//
// SQLite has one writer at a time, so there is one lane, and BEGIN IMMEDIATE is its lock. A look at an empty outbox takes
// no lock. SQLite runs in the process, and its clock is the process's: processes that share a file share the machine's
// clock.
package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"fmt"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// Store is the outbox table of one SQLite database. It implements [outbox.FullStore] and is safe for concurrent use.
type Store struct {
	db    *sql.DB
	table string
	now   func() time.Time
	sql   statements
}

var _ outbox.FullStore = (*Store)(nil)

// statements holds each SQL text with the table's name filled in.
type statements struct {
	window, windowUnordered, claim, markPublished, markOther, renew, ready string
	purge, finishedBrokers, counts, lastErrors, lock, unlock               string
}

// An Option refines a store.
type Option func(*Store)

// WithClock replaces time.Now, for tests that move time.
func WithClock(now func() time.Time) Option { return func(s *Store) { s.now = now } }

// New makes a store on a database that stays the caller's to close. An empty table means outbox.DefaultTable.
func New(db *sql.DB, table string, options ...Option) (*Store, error) {
	if table == "" {
		table = outbox.DefaultTable
	}
	if err := outbox.CheckTable(table); err != nil {
		return nil, err
	}
	s := &Store{db: db, table: table, now: time.Now}
	for _, option := range options {
		option(s)
	}
	for name, text := range map[string]*string{
		"window": &s.sql.window, "window_unordered": &s.sql.windowUnordered, "claim": &s.sql.claim,
		"mark_published": &s.sql.markPublished, "mark_other": &s.sql.markOther, "renew": &s.sql.renew, "ready": &s.sql.ready,
		"purge": &s.sql.purge, "finished_brokers": &s.sql.finishedBrokers, "counts": &s.sql.counts,
		"last_errors": &s.sql.lastErrors, "lock": &s.sql.lock, "unlock": &s.sql.unlock,
	} {
		*text = readSQL(name, table)
	}
	return s, nil
}

// Dialect implements outbox.FullStore.
func (s *Store) Dialect() outbox.Dialect { return outbox.SQLite }

// Lanes implements outbox.Store.
func (s *Store) Lanes() int { return 1 }

// Close does nothing: the database is the caller's.
func (s *Store) Close() error { return nil }

func (s *Store) micros() int64 { return s.now().UnixMicro() }

// readSQL renders one embedded text. The files are part of the program, so a missing one cannot happen at run time.
func readSQL(name, table string) string {
	text, err := sqlFiles.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err)
	}
	return outbox.RenderSQL(string(text), table)
}

// How long a writer waits for the others, beyond the DSN's own busy timeout.
const (
	busyPatience = 5 * time.Second
	busyPause    = 5 * time.Millisecond
)

// write runs f in a transaction that holds the database's write lock from its first statement. database/sql cannot say
// BEGIN IMMEDIATE, so the transaction is run by hand on a connection of its own, which never goes back into the pool in
// the middle of one.
func (s *Store) write(ctx context.Context, f func(conn *sql.Conn) error) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close() //nolint:errcheck // it goes back into the pool
	if err := begin(ctx, conn); err != nil {
		return explain(err)
	}
	if err := f(conn); err != nil {
		s.rollback(ctx, conn)
		return explain(err)
	}
	if _, err := conn.ExecContext(ctx, "COMMIT"); err != nil {
		s.rollback(ctx, conn)
		return explain(err)
	}
	return nil
}

func begin(ctx context.Context, conn *sql.Conn) error {
	for waited, pause := time.Duration(0), busyPause; ; pause *= 2 {
		_, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE")
		if err == nil || !isBusy(err) || waited >= busyPatience {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		waited += pause
	}
}

// rollback ends the transaction even when the caller's context has ended. A connection on which that fails is closed.
func (s *Store) rollback(ctx context.Context, conn *sql.Conn) {
	if _, err := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK"); err != nil && !strings.Contains(err.Error(), "no transaction is active") {
		_ = conn.Raw(func(any) error { return errBroken })
	}
}

// errBroken takes a connection out of the pool.
var errBroken = driver.ErrBadConn

// isBusy reports SQLITE_BUSY, in the words that all drivers use: their error types differ.
func isBusy(err error) bool {
	return strings.Contains(err.Error(), "database is locked") || strings.Contains(err.Error(), "SQLITE_BUSY")
}

// explain adds the remedy to errors that an operator can act on.
func explain(err error) error {
	if err == nil {
		return nil
	}
	for _, text := range []string{"no such table", "no such column", "no such index", "has no column named"} {
		if strings.Contains(err.Error(), text) {
			return fmt.Errorf("%w (%w)", outbox.ErrSchema, err)
		}
	}
	if isBusy(err) {
		return fmt.Errorf("%w: another process holds the write lock for long; set a busy timeout and a write-ahead log in the DSN", err)
	}
	return err
}
