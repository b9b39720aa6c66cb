// Package sqlserver keeps the outbox in SQL Server 2016 or later, in a database with compatibility
// level 130 or higher.
//
// The store works on a *sql.DB that was opened with github.com/microsoft/go-mssqldb under the name
// "sqlserver"; that driver sets the session options which the table's filtered indexes and computed
// column need. It makes no difference whether the database has READ_COMMITTED_SNAPSHOT switched on.
// DELAYED_DURABILITY = ALLOWED makes claims cheaper, and only them. The SQL stands in the sql and
// migrations directories.
//
// Claims begin at the first entry of their shard in the index of open rows, every time: there is no
// mark below which nothing is open, as the store for PostgreSQL keeps one. There a finished row
// leaves an entry in the index until vacuum comes, and one old transaction, anywhere in the
// database, holds vacuum back. Here it leaves a ghost record, which a task of the server removes
// within seconds of the commit, whatever other transactions are in progress. The exception is a
// reader of row versions: with READ_COMMITTED_SNAPSHOT or ALLOW_SNAPSHOT_ISOLATION on, or with a
// readable secondary, ghosts stay while a transaction or statement is running that may still read
// what they were. Then each claim passes over all entries that finished since it began. That costs
// time and nothing else, and ends with it: keep transactions under SNAPSHOT isolation, and reports
// on secondaries, short.
package sqlserver

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/internal/sqladmin"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// Store is the outbox table of one SQL Server database. It implements [driver.Store], and is safe
// for concurrent use.
type Store struct {
	*administration

	db    *sql.DB
	table string
	now   func() time.Time // this process's clock, which only Diagnose looks at
	sql   statements
}

var _ driver.Store = (*Store)(nil)

// statements holds each SQL text with the table's name filled in.
type statements struct {
	exchange                          map[parts]string
	window, take, deferRows, lift     string
	renew, ready                      string
	exclusive, release                string
	migrate, record, replica, applied string
	facts, diagnose, clock, rights    string
}

// New makes a store on a database that stays the caller's to close. Give the store a pool of its
// own, with a connection for each worker and two more: what it shares, its renewals wait for, and
// [Store.Exclusive] keeps one connection for as long as it runs; a pool of a single one is refused
// by it and by [Store.Check]. An empty table means outbox.DefaultTable. New does not connect.
func New(db *sql.DB, table string) (*Store, error) {
	if table == "" {
		table = outbox.DefaultTable
	}
	if err := errors.Join(outbox.ValidateTable(table), driver.ValidateTableAmong(table, sqlFiles, "sql")); err != nil {
		return nil, err
	}
	s := &Store{db: db, table: table, now: time.Now}
	var err error
	if s.administration, err = sqladmin.New(database{s}, sqladmin.SQLServer, table); err != nil {
		return nil, err
	}
	s.sql.exchange, s.sql.take = exchangeTexts(table), batchText(table, "take", "fetch")
	for name, text := range map[string]*string{
		"window": &s.sql.window, "defer": &s.sql.deferRows, "lift": &s.sql.lift,
		"renew": &s.sql.renew, "ready": &s.sql.ready, "exclusive": &s.sql.exclusive, "release": &s.sql.release,
		"migrate": &s.sql.migrate, "record": &s.sql.record, "replica": &s.sql.replica, "applied": &s.sql.applied,
		"facts": &s.sql.facts, "diagnose": &s.sql.diagnose, "clock": &s.sql.clock, "rights": &s.sql.rights,
	} {
		*text = batchText(table, name)
	}
	return s, nil
}

// Dialect implements driver.Store.
func (s *Store) Dialect() outbox.Dialect { return outbox.SQLServer }

// Shards implements driver.Delivery.
func (s *Store) Shards() int { return outbox.Shards }

// Holder implements driver.Delivery. The server tells that only with further rights.
func (*Store) Holder(context.Context, string, int) (driver.Holder, error) {
	return driver.Holder{Session: "unknown: look for an open transaction in sys.dm_tran_session_transactions"}, nil
}

// Close does nothing: the database is the caller's.
func (s *Store) Close() error { return nil }

// batchText makes one batch of embedded files, behind the prelude.
func batchText(table string, names ...string) string {
	var b strings.Builder
	b.WriteString(sqladmin.Part(sqladmin.SQLServer, "part_prelude"))
	for _, name := range names {
		b.WriteString(embedded(name))
	}
	return driver.RenderSQL(b.String(), table)
}

// include stands in a file for another one: {{include part_x}}. What is included {{include part_x
// for completed}} is about @completed_broker and @completed_shard instead of @broker and @shard.
var include = regexp.MustCompile(`\{\{include (\w+)(?: for (\w+))?\}\}\n`)

// embedded is the text of one file. The files are part of the program, so a missing one cannot
// happen at run time.
func embedded(name string) string {
	text, err := sqlFiles.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err)
	}
	return include.ReplaceAllStringFunc(sqladmin.Bare(string(text)), func(match string) string {
		part := include.FindStringSubmatch(match)
		if part[2] == "" {
			return embedded(part[1])
		}
		return strings.NewReplacer("@broker", "@"+part[2]+"_broker", "@shard", "@"+part[2]+"_shard").Replace(embedded(part[1]))
	})
}

// lockName names the lock of one thing of this table. The server puts the id of the table in front,
// so that the lock is the same however the table's name is spelled. The thing's own name is hashed:
// a resource has 255 characters at most.
func (s *Store) lockName(name string) string {
	sum := sha256.Sum256([]byte(name))
	return bareName(s.table) + ":exclusive:" + hex.EncodeToString(sum[:16])
}

// bareName is the table's name without its schema. Servers that compare names without regard to
// case spell one table in several ways.
func bareName(table string) string {
	return strings.ToLower(table[strings.LastIndexByte(table, '.')+1:])
}
