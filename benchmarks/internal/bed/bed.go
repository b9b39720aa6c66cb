// Package bed sets up what a benchmark runs on: a database of its own, filled tables, and the server's counters.
package bed

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gorm-fanout/fanout/outbox/driver"
	"github.com/gorm-fanout/fanout/outbox/postgres"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// Database is an empty PostgreSQL database for one benchmark.
type Database struct {
	// URL of the database.
	URL string
	// Admin are connections beside those of the stores.
	Admin *pgxpool.Pool

	server, name string
	stores       []*Table
	far          []*Distance
}

// dropTimeout bounds the removal of a database, which waits for the disk.
const dropTimeout = 5 * time.Minute

// Create makes a database on a server, which is told as a URL of a user who may create databases. The caller drops it.
func Create(ctx context.Context, server, label string) (*Database, error) {
	dsn, err := url.Parse(server)
	if err != nil || (dsn.Scheme != "postgres" && dsn.Scheme != "postgresql") {
		return nil, errors.New("bed: the server is not told as a URL like postgres://user@host:port/database")
	}
	name := "fanout_bench_" + label + "_" + strings.ToLower(rand.Text()[:8])
	if err := administer(ctx, server, "CREATE DATABASE "+name+" TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'"); err != nil {
		return nil, fmt.Errorf("bed: create a database: %w", err)
	}
	dsn.Path = "/" + name
	d := &Database{URL: dsn.String(), server: server, name: name}
	if d.Admin, err = pgxpool.New(ctx, d.URL); err != nil {
		return nil, errors.Join(err, d.Drop()) //nolint:contextcheck // the context may be what has ended
	}
	return d, nil
}

// Drop closes all connections and removes the database, whoever else is connected. It has a time of its own, because it also
// cleans up after a benchmark that was interrupted.
func (d *Database) Drop() error {
	for _, table := range d.stores {
		table.pool.Close()
	}
	if d.Admin != nil {
		d.Admin.Close()
	}
	for _, far := range d.far {
		_ = far.Close() // nothing is behind it any more
	}
	ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
	defer cancel()
	return administer(ctx, d.server, "DROP DATABASE IF EXISTS "+d.name+" WITH (FORCE)")
}

// Version of the server.
func (d *Database) Version(ctx context.Context) (version string, err error) {
	err = d.Admin.QueryRow(ctx, "SELECT split_part(current_setting('server_version'), ' ', 1)").Scan(&version)
	return version, err
}

// WAL is how much was written to the log so far, in bytes, by everybody on the server.
func (d *Database) WAL(ctx context.Context) (bytes int64, err error) {
	err = d.Admin.QueryRow(ctx, "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint").Scan(&bytes)
	return bytes, err
}

// Checkpoint makes one, so that the server makes none of its own accord for a while. Where the user may not, it says so on log.
func (d *Database) Checkpoint(ctx context.Context, log io.Writer) error {
	_, err := d.Admin.Exec(ctx, "CHECKPOINT")
	if pgErr := (*pgconn.PgError)(nil); errors.As(err, &pgErr) && pgErr.Code == "42501" {
		fmt.Fprintln(log, "no checkpoint is made before the measurement, since the user may not: the log can hold more whole pages")
		return nil
	}
	return err
}

func administer(ctx context.Context, server, statement string) error {
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, statement)
	return err
}

// Table is one outbox table with its store.
type Table struct {
	// Store has connections of its own.
	Store *postgres.Store

	name   string
	pool   *pgxpool.Pool
	admin  *pgxpool.Pool
	nextID int64
}

// TableFarAway is Table with a store for which the server is a round trip of this time away.
func (d *Database) TableFarAway(ctx context.Context, name string, connections int32, roundTrip time.Duration) (*Table, error) {
	if roundTrip <= 0 {
		return d.Table(ctx, name, connections)
	}
	config, err := pgxpool.ParseConfig(d.URL)
	if err != nil {
		return nil, err
	}
	network, address := pgconn.NetworkAddress(config.ConnConfig.Host, config.ConnConfig.Port)
	far, err := FarAway(ctx, network, address, roundTrip)
	if err != nil {
		return nil, err
	}
	d.far = append(d.far, far)
	return d.Table(ctx, name, connections, func(config *pgxpool.Config) {
		config.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", far.Addr)
		}
	})
}

// Table migrates an outbox table and opens its store, with at most the given number of connections. Options change how the store's
// connections are opened.
func (d *Database) Table(ctx context.Context, name string, connections int32, options ...func(*pgxpool.Config)) (*Table, error) {
	config, err := pgxpool.ParseConfig(d.URL)
	if err != nil {
		return nil, err
	}
	config.MaxConns = connections
	// As postgres.Open has it: connections are not tried out before each use.
	config.ShouldPing = func(_ context.Context, params pgxpool.ShouldPingParams) bool { return params.IdleDuration > pingAfter }
	for _, option := range options {
		option(config)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	table := &Table{name: name, pool: pool, admin: d.Admin}
	d.stores = append(d.stores, table) // closed with the database from here on
	if table.Store, err = postgres.New(pool, name); err != nil {
		return nil, err
	}
	if _, err = table.Store.Migrate(ctx); err != nil {
		return nil, err
	}
	return table, nil
}

// pingAfter is how long a connection is idle before it is tried out.
const pingAfter = 30 * time.Second

// Name of the table.
func (t *Table) Name() string { return t.name }

// Row is what tells the order of a message.
type Row struct {
	ID  int64
	Key string
}

// Keys are all rows by message id, where there is one broker.
func (t *Table) Keys(ctx context.Context) (map[uuid.UUID]Row, error) {
	return t.keys(ctx, "SELECT message_id, id, coalesce(ordering_key, '') FROM {{table}}")
}

// KeysOf are the rows of one broker by message id.
func (t *Table) KeysOf(ctx context.Context, broker string) (map[uuid.UUID]Row, error) {
	return t.keys(ctx, "SELECT message_id, id, coalesce(ordering_key, '') FROM {{table}} WHERE target_broker = $1", broker)
}

func (t *Table) keys(ctx context.Context, text string, args ...any) (map[uuid.UUID]Row, error) {
	rows, err := t.admin.Query(ctx, driver.RenderSQL(text, t.name), args...)
	if err != nil {
		return nil, err
	}
	keys := map[uuid.UUID]Row{}
	var (
		id  pgtype.UUID
		row Row
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &row.ID, &row.Key}, func() error {
		keys[id.Bytes] = row
		return nil
	})
	return keys, err
}

// Exec executes a statement in which {{table}} stands for the table's name.
func (t *Table) Exec(ctx context.Context, text string, args ...any) error {
	_, err := t.admin.Exec(ctx, driver.RenderSQL(text, t.name), args...)
	return err
}

// Get reads one value by a statement in which {{table}} stands for the table's name.
func Get[T any](ctx context.Context, t *Table, text string, args ...any) (value T, err error) {
	err = t.admin.QueryRow(ctx, driver.RenderSQL(text, t.name), args...).Scan(&value)
	return value, err
}

func readSQL(name string) string {
	text, err := sqlFiles.ReadFile("sql/" + name + ".sql")
	if err != nil { // the files are part of the program
		panic(err)
	}
	return string(text)
}
