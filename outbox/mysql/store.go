// Package mysql keeps the outbox in MySQL 8.0.22 or later, or MariaDB 10.6 or later.
//
// It is tested with MySQL 9.7 and MariaDB 10.11 and 11.8.
//
// Reads wait for no lock, and each of them sees one state of the tables. Writes lock the rows that
// they change and no gaps between them: the store's transactions are READ COMMITTED, whatever the
// sessions are, and look rows up by primary key. The binary log must have the format ROW or MIXED
// for that, which are the defaults of MySQL and of MariaDB.
//
// Completing a batch and claiming the next one is a commit, which the server writes to its redo log
// and to its binary log. What that costs is the server's to say: innodb_flush_log_at_trx_commit = 1
// and sync_binlog = 1 wait for the disk each time, other values can lose the last second of commits
// in a crash, messages included. There is no setting for single transactions, and no
// notification: relays in other processes find new rows by polling.
package mysql

import (
	"context"
	"crypto/tls"
	"database/sql"
	sqldriver "database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/gorm-fanout/fanout/internal/sqladmin"
	"github.com/gorm-fanout/fanout/internal/sqltx"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// Store is the outbox table of one database. It implements [driver.Store], and is safe for concurrent
// use.
type Store struct {
	*administration

	db         *sql.DB
	owned      bool // the database is closed with the store
	table      string
	now        func() time.Time // this process's clock, which only Diagnose looks at
	heldLong   time.Duration    // see driver.HeldLong
	statements map[string]statement
	water      lowWater
}

var _ driver.Store = (*Store)(nil)

// New makes a store on a database that stays the caller's to close. Give the store a pool of its
// own, with a connection for each worker and two more: what it shares, its renewals wait for, and
// [Store.Exclusive] keeps one connection for as long as it runs. Sessions must be in autocommit mode
// and in utf8mb4, as they are by default. With interpolateParams=true in the DSN each statement is
// one round trip instead of two; [Open] sets that. An empty table means outbox.DefaultTable. New
// does not connect.
func New(db *sql.DB, table string) (*Store, error) {
	if table == "" {
		table = outbox.DefaultTable
	}
	if err := errors.Join(outbox.ValidateTable(table), driver.ValidateTableAmong(table, sqlFiles, "sql")); err != nil {
		return nil, err
	}
	s := &Store{db: db, table: table, now: time.Now, heldLong: driver.HeldLong, statements: map[string]statement{}}
	var err error
	if s.administration, err = sqladmin.New(database{s}, sqladmin.MySQL, table); err != nil {
		return nil, err
	}
	names, err := fs.Glob(sqlFiles, "sql/*.sql")
	if err != nil {
		return nil, fmt.Errorf("mysql: list the embedded SQL: %w", err)
	}
	for _, file := range names {
		name := strings.TrimSuffix(strings.TrimPrefix(file, "sql/"), ".sql")
		text, parameters := sqladmin.Compile(embedded(name), embedded, sqladmin.MySQL, table)
		s.statements[name] = statement{text, parameters}
	}
	text, parameters := sqladmin.Compile(embedded("ready"), unmarked, sqladmin.MySQL, table)
	s.statements["ready_unmarked"] = statement{text, parameters}
	return s, nil
}

// Open makes a store on a pool of its own, which [Store.Close] closes, and asks whether the server
// is there. The DSN is that of github.com/go-sql-driver/mysql, as in
// "user:password@tcp(host:3306)/database". Open sets interpolateParams, since a statement with
// parameters takes two round trips otherwise, and innodb_lock_wait_timeout=1: a transaction that meets a
// locked row gives way and is tried again, on MariaDB at once, on MySQL after that second. It sets
// wait_timeout, net_read_timeout and net_write_timeout to 20: after so many seconds the server ends a
// transaction of a process that was stopped or cut off, or does not read, and lets go of its locks. It
// sets aside completion_type, sql_select_limit and EMPTY_STRING_IS_NULL, which change what statements
// mean. The DSN overrides all of these.
func Open(ctx context.Context, dsn, table string, opts ...Option) (*Store, error) {
	settings, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("mysql: the DSN cannot be read: want one like user:password@tcp(host:3306)/database: %w", withoutSecrets(err))
	}
	if !strings.Contains(dsn, "interpolateParams=") {
		settings.InterpolateParams = true
	}
	settings.Logger = &mysql.NopLogger{} // what fails is an error, which the relay logs once
	if settings.Params == nil {
		settings.Params = map[string]string{}
	}
	for name, value := range session {
		if _, ok := settings.Params[name]; !ok {
			settings.Params[name] = value
		}
	}
	o := options{}
	for _, opt := range opts {
		opt(&o)
	}
	if o.tls != nil {
		settings.TLS = o.tls
	}
	connector, err := mysql.NewConnector(settings)
	if err != nil {
		return nil, fmt.Errorf("mysql: the DSN cannot be used: %w", withoutSecrets(err))
	}
	db := sql.OpenDB(connector)
	db.SetConnMaxIdleTime(idlePatience / 2)
	if o.conns > 0 {
		db.SetMaxOpenConns(o.conns)
		db.SetMaxIdleConns(o.conns)
	}
	s, err := New(db, table)
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	if err := db.PingContext(ctx); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("mysql: cannot reach the database at %s: %w", settings.Addr, err)
	}
	s.owned = true
	return s, nil
}

const (
	// lockPatience is how long a statement waits for a lock. It is the shortest time that MySQL knows, since MySQL
	// has no statement that writes and does not wait.
	lockPatience = time.Second
	// idlePatience is how long the server keeps a session that says nothing. There is no such limit
	// for transactions alone, as other databases have it.
	idlePatience = 20 * time.Second
)

// session is how a relay's sessions are set, whatever the server's defaults are: how long they wait and may be silent,
// and away with settings that change what a statement means.
var session = map[string]string{
	"innodb_lock_wait_timeout": seconds(lockPatience), "wait_timeout": seconds(idlePatience),
	"net_read_timeout": seconds(idlePatience), "net_write_timeout": seconds(idlePatience),
	"completion_type":  "NO_CHAIN", // a commit would begin the next transaction
	"sql_select_limit": noLimit,
	"sql_mode":         "REPLACE(@@sql_mode, 'EMPTY_STRING_IS_NULL', '')", // MariaDB
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

// withoutSecrets keeps what a parser says, and none of the DSN that it may quote.
func withoutSecrets(err error) error {
	text, _, _ := strings.Cut(err.Error(), ":")
	return errors.New(text)
}

// An Option of [Open].
type Option func(*options)

type options struct {
	conns int
	tls   *tls.Config
}

// WithMaxConns bounds the connections of the pool. By default it is not bounded.
func WithMaxConns(n int) Option { return func(o *options) { o.conns = n } }

// WithTLS sets how connections are encrypted, where the DSN's parameter tls cannot say it.
func WithTLS(config *tls.Config) Option { return func(o *options) { o.tls = config } }

// Dialect implements driver.Store.
func (s *Store) Dialect() outbox.Dialect { return outbox.MySQL }

// Shards implements driver.Delivery.
func (s *Store) Shards() int { return outbox.Shards }

// Close waits for what the store does in the background, and closes the pool that [Open] has made; a
// database that was given to [New] is the caller's.
func (s *Store) Close() error {
	s.water.close()
	if !s.owned {
		return nil
	}
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("mysql: close: %w", err)
	}
	return nil
}

// embedded is the text of one file. The files are part of the program, so a missing one cannot
// happen at run time.
func embedded(name string) string {
	text, err := sqlFiles.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err)
	}
	return string(text)
}

// ofMarks is what a text does for low-water marks alone.
var ofMarks = regexp.MustCompile(`(?s)/\*marks\*/.*?/\*end\*/`)

// unmarked is the text of one file for a table without low-water marks.
func unmarked(name string) string { return ofMarks.ReplaceAllString(embedded(name), "") }

// A statement is a text and the names of its parameters, in the order of the text.
type statement struct {
	text       string
	parameters []string
}

// args are values by the names of parameters.
type args map[string]any

func (s statement) bind(given args) []any {
	bound := make([]any, len(s.parameters))
	for i, name := range s.parameters {
		bound[i] = given[name]
	}
	return bound
}

// conn is a pool, a connection or a transaction.
type conn = sqladmin.Conn

// exec runs a statement and returns how many rows it has changed.
func (s *Store) exec(ctx context.Context, on conn, name string, given args) (int, error) {
	return execText(ctx, on, s.statements[name], given)
}

func execText(ctx context.Context, on conn, st statement, given args) (int, error) {
	result, err := on.ExecContext(ctx, st.text, st.bind(given)...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// query runs a statement and calls row for each row of its answer.
func (s *Store) query(ctx context.Context, on conn, name string, given args, row func(scan scanner) error) error {
	return queryText(ctx, on, s.statements[name], given, row)
}

func queryText(ctx context.Context, on conn, st statement, given args, row func(scan scanner) error) error {
	rows, err := on.QueryContext(ctx, st.text, st.bind(given)...)
	if err != nil {
		return err
	}
	defer rows.Close() // Err tells
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// A scanner reads the columns of one row.
type scanner func(dest ...any) error

// list runs a statement that answers with ids.
func (s *Store) list(ctx context.Context, on conn, name string, given args) (ids []int64, err error) {
	err = s.query(ctx, on, name, given, func(scan scanner) error {
		var id int64
		err := scan(&id)
		ids = append(ids, id)
		return err
	})
	return ids, err
}

// transaction runs f in one transaction, which is rolled back where f fails. Each statement sees
// what was committed before it, and locks no gaps.
func (s *Store) transaction(ctx context.Context, f func(tx *sql.Tx) error) error {
	return sqltx.Run(ctx, s.db, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, f)
}

// discard takes a connection out of the pool.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
}
