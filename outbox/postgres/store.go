// Package postgres keeps the outbox in PostgreSQL (14 or later).
//
// A Store has a small connection pool of its own: processors neither wait for the application's
// connections nor take them away. The SQL stands in the sql and migrations directories.
package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"math"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gorm-fanout/fanout/internal/dbtable"
	"github.com/gorm-fanout/fanout/internal/failure"
	"github.com/gorm-fanout/fanout/internal/sqladmin"
	"github.com/gorm-fanout/fanout/internal/store/contention"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// Store is the outbox table of one PostgreSQL database. It implements [driver.Store] and is safe for
// concurrent use.
type Store struct {
	*administration

	pool    *pgxpool.Pool
	table   string
	channel string           // on which rows are announced
	now     func() time.Time // this process's clock, which only Diagnose looks at
	sql     statements
	water   lowWater
	simple  simpleShards
	closing context.Context //nolint:containedctx // of full looks, which outlive the poll that began them: close ends it
	close   context.CancelFunc
	// For how long a transaction is repeated that meets locked rows.
	patience          time.Duration
	heldLong, silence time.Duration // see driver.HeldLong and driver.HeldSilently
	// From when on a transaction that holds back vacuum is reported.
	heldBack             time.Duration
	heldBackTransactions int64
}

var _ driver.Store = (*Store)(nil)

// statements holds each SQL text with the table's name filled in.
type statements struct {
	lock, tryLock, claim, claimUnordered, window, ahead, locked, take, takeUnordered, takeSettings, fetch, between, planSettings string
	blocks, turn, lift, free, deferRows                                                                                          string
	settings, markPublished, deletePublished, markOther, renew, ready, below                                                     string
	exclusive, exclusiveSettings, writers, holder                                                                                string
	facts, diagnose, horizon, watch                                                                                              string
	listen, notify                                                                                                               string
}

// An Option refines Open.
type Option func(*config)

type config struct {
	maxConns int
	brief    bool
}

// WithMaxConns bounds the store's pool where the DSN does not say pool_max_conns; at least 1.
// Default: 4. A relay wants workers of all brokers plus two, so that renewals and probes never wait
// behind claims; one is enough for every verb. Exclusive and Listen have connections of their own
// beside the pool for as long as they run.
func WithMaxConns(n int) Option { return func(c *config) { c.maxConns = n } }

const defaultMaxConns = 4

// WithBriefUse is for a store that answers a question or two and is closed: it connects with the
// first one, so that Open does not find out whether the database can be reached, and prepares no
// statements.
func WithBriefUse() Option { return func(c *config) { c.brief = true } }

// Open connects to the database of a DSN, in the form of a URL or of keywords, as pgx and libpq
// read it. Its pool_max_conns is honoured, and so is its default_query_exec_mode: behind a pooler in
// transaction mode that keeps no prepared statements, set it to "exec". table may have a schema in
// front; empty means outbox.DefaultTable. Open fails when the database cannot be reached; it does
// not look at the schema (see [Store.Check]). The caller closes the store.
func Open(ctx context.Context, dsn, table string, opts ...Option) (*Store, error) {
	cfg := config{maxConns: defaultMaxConns}
	for _, opt := range opts {
		opt(&cfg)
	}
	if cfg.maxConns < 1 || cfg.maxConns > math.MaxInt32 {
		return nil, fmt.Errorf("postgres: a pool of %d connections: it must have at least 1", cfg.maxConns)
	}
	poolConfig, err := pgxpool.ParseConfig(dsn)
	if err == nil && cutShort.MatchString(dsn) {
		err = &pgconn.ParseConfigError{}
	}
	if err != nil {
		return nil, fmt.Errorf("postgres: read the DSN: %w", redact(err))
	}
	if !strings.Contains(dsn, "pool_max_conns") { // else pgx would take a number that follows the processors
		poolConfig.MaxConns = int32(cfg.maxConns)
	}
	if poolConfig.ConnConfig.RuntimeParams["application_name"] == "" {
		poolConfig.ConnConfig.RuntimeParams["application_name"] = "fanout"
	}
	if cfg.brief {
		poolConfig.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	// By default a connection that was idle for a second is tried out first, which doubles the
	// round trips of a relay with little to do.
	poolConfig.ShouldPing = func(_ context.Context, params pgxpool.ShouldPingParams) bool {
		return params.IdleDuration > pingAfter || ended(params.Conn.PgConn().Conn())
	}
	pool, err := pgxpool.NewWithConfig(ctx, poolConfig)
	if err != nil {
		return nil, fmt.Errorf("postgres: open the pool: %w", redact(err))
	}
	store, err := New(pool, table)
	if err != nil {
		pool.Close()
		return nil, err
	}
	if cfg.brief {
		return store, nil
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("postgres: cannot reach the database at %s: %w", addresses(poolConfig.ConnConfig), explain(redact(err)))
	}
	return store, nil
}

// New makes a store on a pool, which Close closes. Share the pool with nothing else: renewals would
// wait for the other work. An empty table means outbox.DefaultTable.
func New(pool *pgxpool.Pool, table string) (*Store, error) {
	if table == "" {
		table = outbox.DefaultTable
	}
	if err := errors.Join(outbox.ValidateTable(table), driver.ValidateTableAmong(table, sqlFiles, "sql")); err != nil {
		return nil, err
	}
	s := &Store{
		pool: pool, table: table, channel: wakeup.Channel(table), now: time.Now, patience: contention.Patience,
		heldBack: heldBack, heldBackTransactions: heldBackTransactions, heldLong: driver.HeldLong, silence: driver.HeldSilently,
	}
	s.closing, s.close = context.WithCancel(context.Background())
	var err error
	if s.administration, err = sqladmin.New(database{s}, sqladmin.Postgres, table); err != nil {
		return nil, err
	}
	for name, text := range map[string]*string{
		"lock": &s.sql.lock, "try_lock": &s.sql.tryLock,
		"claim": &s.sql.claim, "claim_unordered": &s.sql.claimUnordered, "window": &s.sql.window, "ahead": &s.sql.ahead, "locked": &s.sql.locked,
		"take": &s.sql.take, "take_unordered": &s.sql.takeUnordered, "take_settings": &s.sql.takeSettings,
		"fetch": &s.sql.fetch, "between": &s.sql.between, "plan_settings": &s.sql.planSettings,
		"blocks": &s.sql.blocks, "turn": &s.sql.turn, "lift": &s.sql.lift, "free": &s.sql.free, "defer": &s.sql.deferRows,
		"settings":       &s.sql.settings,
		"mark_published": &s.sql.markPublished, "delete_published": &s.sql.deletePublished, "mark_other": &s.sql.markOther, "renew": &s.sql.renew, "ready": &s.sql.ready,
		"below":   &s.sql.below,
		"writers": &s.sql.writers, "holder": &s.sql.holder,
		"facts": &s.sql.facts, "diagnose": &s.sql.diagnose, "horizon": &s.sql.horizon,
		"exclusive": &s.sql.exclusive, "exclusive_settings": &s.sql.exclusiveSettings,
		"notify": &s.sql.notify,
	} {
		*text = readSQL(name, table)
	}
	s.sql.watch = "SELECT kind, name, role, application, since FROM (" + s.sql.horizon + ") AS holders" +
		" UNION ALL SELECT '" + kindIdentity + "', '', '', '', NULL WHERE (" + readSQL("identity", table) + ")"
	s.sql.listen = strings.ReplaceAll(readSQL("listen", table), "{{channel}}", s.channel)
	return s, nil
}

// Dialect implements driver.Store.
func (s *Store) Dialect() outbox.Dialect { return outbox.Postgres }

// Shards implements driver.Delivery.
func (s *Store) Shards() int { return outbox.Shards }

// Close closes the pool.
func (s *Store) Close() error {
	s.close()
	s.pool.Close()
	return nil
}

// cutShort is a URL with a password that was not escaped: it seems to end at a "/" or an "@" inside
// of it, and what follows would be taken for the name of the database or a host, which errors and
// logs show. An @ in such a name is written %40.
var cutShort = regexp.MustCompile(`^[a-z]+://([^/@?#]*/[^?#]*@|[^/?#]*@[^/?#]*@)`)

// redact keeps passwords out of errors: pgx quotes the DSN in parse errors and masks the password
// only in URLs.
func redact(err error) error {
	var parse *pgconn.ParseConfigError
	if errors.As(err, &parse) {
		return errors.New("cannot parse it as a PostgreSQL URL or keyword list: check quoting, port, sslmode; escape special characters in a URL (@ is %40, / is %2F, # is %23)")
	}
	return err
}

// pingAfter is how long a connection may be idle and be used all the same without being tried out:
// longer than the time between two looks. On one that has died meanwhile without a word the look
// fails, and is made again.
const pingAfter = 30 * time.Second

// Codes of errors that are distinguished.
const (
	undefinedTable        = "42P01"
	invalidSchema         = "3F000"
	insufficientPrivilege = "42501"
	readOnlyTransaction   = "25006"
	lockNotAvailable      = "55P03"
)

// addresses are those at which a connection is looked for, each once.
func addresses(cfg *pgx.ConnConfig) string {
	list := []string{net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port)))}
	for _, other := range cfg.Fallbacks {
		if at := net.JoinHostPort(other.Host, strconv.Itoa(int(other.Port))); !slices.Contains(list, at) {
			list = append(list, at)
		}
	}
	return strings.Join(list, ", ")
}

// oneLineError is an error whose text has no lines: the driver writes one for each try of an address, also of the same one.
type oneLineError struct{ error }

func (e oneLineError) Unwrap() error { return e.error }

func (e oneLineError) Error() string {
	lines := strings.Split(e.error.Error(), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return lines[0] + strings.TrimSuffix(" "+strings.Join(slices.Compact(lines[1:]), "; "), " ")
}

// explain adds the remedy to errors that an operator can act on.
func explain(err error) error {
	var connecting *pgconn.ConnectError
	if errors.As(err, &connecting) {
		err = oneLineError{err}
	}
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return err
	}
	switch pgErr.Code {
	case insufficientPrivilege:
		return failure.Advise(err, "docs/operations.md lists what the roles of relays, operators and writers need")
	case readOnlyTransaction:
		return failure.Advise(err, "the relay needs the primary, not a read replica, and a server that is not set to read-only")
	case lockNotAvailable:
		return failure.Advise(err, "another session holds its locks for long; look for an open transaction in pg_stat_activity")
	default:
		return dbtable.Explain(err, outbox.ErrSchema)
	}
}

// readSQL renders one embedded text. The files are part of the program, so a missing one cannot
// happen at run time.
func readSQL(name, table string) string {
	text, err := sqlFiles.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err)
	}
	sent := string(text)
	for includes.MatchString(sent) { // parts have parts
		sent = includes.ReplaceAllStringFunc(sent, func(match string) string {
			part := includes.FindStringSubmatch(match)[1]
			if own, err := sqlFiles.ReadFile("sql/" + part + ".sql"); err == nil {
				return strings.TrimSpace(sqladmin.Bare(string(own)))
			}
			return strings.TrimSpace(sqladmin.Part(sqladmin.Postgres, part))
		})
	}
	return driver.RenderSQL(sent, table)
}

// includes are parts that texts have in common with each other, or with those of operators.
var includes = regexp.MustCompile(`\{\{include (\w+)\}\}`)

// begin starts a transaction in which each statement sees what was committed before it, whatever
// the server's default. A server that is set to read-only, say because its disk is full, stays so.
const begin = "BEGIN ISOLATION LEVEL READ COMMITTED"

// idle is the state of a connection outside of transactions
// (https://www.postgresql.org/docs/current/protocol-message-formats.html, ReadyForQuery).
const idle = 'I'

// conn runs f on a connection of the pool, and rolls back a transaction that f leaves open when it
// fails: the pool would close the connection, and a new one costs more than a ROLLBACK.
func (s *Store) conn(ctx context.Context, f func(*pgx.Conn) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", redact(err))
	}
	defer conn.Release()
	err = f(conn.Conn())
	if pg := conn.Conn().PgConn(); err != nil && pg.TxStatus() != idle && !pg.IsBusy() && !pg.IsClosed() {
		_, _ = pg.Exec(ctx, "ROLLBACK").ReadAll() // where it fails, the connection is closed
	}
	if conn.Conn().IsClosed() && ctx.Err() == nil {
		// The server has probably ended the idle ones, too: each of them would fail once.
		s.pool.Reset()
	}
	return explain(err)
}
