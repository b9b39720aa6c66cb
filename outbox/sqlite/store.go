// Package sqlite keeps the outbox in SQLite (3.38 or later), the embedded default.
//
// The store works on a *sql.DB and links no driver: open the database with any driver for SQLite.
// With several connections to one file, set in the DSN a write-ahead log and a busy timeout; for
// the pure Go driver of modernc or glebarez that is
// "file.db?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)".
//
// What is read and written for a batch is a few short statements in one transaction: SQL is
// compiled at each call, because the pure Go driver that this module links compiles prepared
// statements anew, too.
//
// One transaction of the store holds the lock for the time of one batch. While others write to the
// file as well, the store leaves the lock free for longer than it held it, so that a backlog does
// not keep the application's transactions waiting; they need a busy timeout. A backlog is then
// delivered more slowly.
//
// A database in memory belongs to one connection: call SetMaxOpenConns(1) on it. One connection is
// enough for every verb.
//
// SQLite has one writer at a time, so there is one shard for each class of rows, and BEGIN
// IMMEDIATE is the lock of them all. A look at an empty outbox takes no lock. SQLite runs in the
// process, and its clock is the process's: processes that share a file share the machine's clock.
package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"time"

	"github.com/gorm-fanout/fanout/internal/sqladmin"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// Store is the outbox table of one SQLite database. It implements [driver.Store] and is safe for
// concurrent use.
type Store struct {
	*administration

	db       *sql.DB
	table    string
	now      func() time.Time
	patience time.Duration // with a lock that is taken
	turns    *turns
	sql      statements

	answerTime time.Duration // of a question that a person asks
}

var _ driver.Store = (*Store)(nil)

// statements holds each SQL text with the table's name filled in.
type statements struct {
	look, lookUnordered, lookBlocks, window, ahead, waiting, claim     string
	head, readHead, claimHead                                          string
	setDeferred, dropLoners, blocks, followers, wakeBlocks, restBlocks string
	moveBlock, dropBlocks, deferBlocks, admit                          string
	markPublished, deletePublished                                     string
	markOther, blockAbandoned, undeferBefore, renew, ready             string
	lock, keep, unlock                                                 string
	facts, diagnose                                                    string
}

// An Option refines a store.
type Option func(*Store)

// WithClock replaces time.Now, for tests that move time.
func WithClock(now func() time.Time) Option { return func(s *Store) { s.now = now } }

// New makes a store on a database that stays the caller's to close. An empty table means
// outbox.DefaultTable.
func New(db *sql.DB, table string, opts ...Option) (*Store, error) {
	if table == "" {
		table = outbox.DefaultTable
	}
	if err := errors.Join(outbox.ValidateTable(table), driver.ValidateTableAmong(table, sqlFiles, "sql")); err != nil {
		return nil, err
	}
	s := &Store{db: db, table: table, now: time.Now, patience: busyPatience, turns: newTurns(), answerTime: answerTime}
	for _, opt := range opts {
		opt(s)
	}
	var err error
	if s.administration, err = sqladmin.New(database{s}, sqladmin.SQLite, table); err != nil {
		return nil, err
	}
	for name, text := range map[string]*string{
		"look": &s.sql.look, "look_unordered": &s.sql.lookUnordered, "look_blocks": &s.sql.lookBlocks,
		"window": &s.sql.window, "ahead": &s.sql.ahead, "waiting": &s.sql.waiting, "claim": &s.sql.claim,
		"head": &s.sql.head, "read_head": &s.sql.readHead, "claim_head": &s.sql.claimHead,
		"followers": &s.sql.followers, "wake_blocks": &s.sql.wakeBlocks, "set_deferred": &s.sql.setDeferred, "drop_loners": &s.sql.dropLoners, "blocks": &s.sql.blocks,
		"rest_blocks": &s.sql.restBlocks, "move_block": &s.sql.moveBlock, "drop_blocks": &s.sql.dropBlocks,
		"defer_blocks": &s.sql.deferBlocks, "admit": &s.sql.admit, "block_abandoned": &s.sql.blockAbandoned, "undefer_before": &s.sql.undeferBefore,
		"mark_published": &s.sql.markPublished, "delete_published": &s.sql.deletePublished, "mark_other": &s.sql.markOther, "renew": &s.sql.renew, "ready": &s.sql.ready,
		"lock": &s.sql.lock, "keep": &s.sql.keep, "unlock": &s.sql.unlock,
		"facts": &s.sql.facts, "diagnose": &s.sql.diagnose,
	} {
		*text = readSQL(name, table)
	}
	return s, nil
}

// Dialect implements driver.Store.
func (s *Store) Dialect() outbox.Dialect { return outbox.SQLite }

// Shards implements driver.Delivery.
func (s *Store) Shards() int { return 1 }

// Holder implements driver.Delivery: who waits for the lock of the database gets an error.
func (*Store) Holder(context.Context, string, int) (driver.Holder, error) {
	return driver.Holder{}, nil
}

// Close does nothing: the database is the caller's.
func (s *Store) Close() error { return nil }

func (s *Store) micros() int64 { return s.now().UnixMicro() }

// readSQL renders one embedded text. The files are part of the program, so a missing one cannot
// happen at run time.
func readSQL(name, table string) string {
	text, err := sqlFiles.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err)
	}
	return driver.RenderSQL(string(text), table)
}
