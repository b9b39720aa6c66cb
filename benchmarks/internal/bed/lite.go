package bed

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"

	_ "github.com/glebarez/go-sqlite" // the driver that the library links
	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/driver"
	"github.com/gorm-fanout/fanout/outbox/sqlite"
)

// Lite is an outbox in a file of SQLite, in WAL mode, and with the durability that SQLite has by default (synchronous=FULL).
type Lite struct {
	// Store has connections of its own.
	Store *sqlite.Store
	// DB are connections beside those of the store.
	DB *sql.DB

	pool *sql.DB
}

// OpenLite makes the file and the tables in a directory, with at most so many connections for the store.
func OpenLite(ctx context.Context, dir string, connections int) (l *Lite, err error) {
	dsn := filepath.Join(dir, "outbox.db") + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)"
	l = &Lite{}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	if l.pool, err = sql.Open("sqlite", dsn); err != nil {
		return l, err
	}
	l.pool.SetMaxOpenConns(connections)
	l.pool.SetMaxIdleConns(connections)
	if l.DB, err = sql.Open("sqlite", dsn); err != nil {
		return l, err
	}
	if l.Store, err = sqlite.New(l.pool, ""); err != nil {
		return l, err
	}
	maker, err := sqlite.New(l.DB, "")
	if err != nil {
		return l, err
	}
	_, err = maker.Migrate(ctx)
	return l, err
}

// Close closes all connections. The file stays.
func (l *Lite) Close() error {
	var err error
	for _, db := range []*sql.DB{l.pool, l.DB} {
		if db != nil {
			err = errors.Join(err, db.Close())
		}
	}
	return err
}

// Fill writes pending rows of one broker, and leaves the log empty, so that no case pays for what another one has written.
func (l *Lite) Fill(ctx context.Context, broker, stream string, rows, keys int64, payload int, seed uint64) error {
	_, err := l.DB.ExecContext(ctx, driver.RenderSQL(readSQL("lite_fill"), outbox.DefaultTable), sql.Named("rows", rows), sql.Named("broker", broker),
		sql.Named("stream", stream), sql.Named("keys", keys), sql.Named("payload", payload), sql.Named("seed", int64(seed%(1<<31))))
	if err == nil {
		_, err = l.DB.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	}
	if err != nil {
		return fmt.Errorf("bed: fill the table of SQLite: %w", err)
	}
	return nil
}

// Version of SQLite.
func (l *Lite) Version(ctx context.Context) (version string, err error) {
	err = l.DB.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version)
	return version, err
}

// Published counts the rows that are done.
func (l *Lite) Published(ctx context.Context) (n int64, err error) {
	err = l.DB.QueryRowContext(ctx, "SELECT count(*) FROM "+outbox.DefaultTable+" WHERE status = 'published' AND published_at IS NOT NULL").Scan(&n)
	return n, err
}

// Keys are all rows by message id.
func (l *Lite) Keys(ctx context.Context) (keys map[uuid.UUID]Row, err error) {
	rows, err := l.DB.QueryContext(ctx, driver.RenderSQL("SELECT message_id, id, ordering_key FROM {{table}}", outbox.DefaultTable))
	if err != nil {
		return nil, err
	}
	defer rows.Close() // Err tells
	keys = map[uuid.UUID]Row{}
	for rows.Next() {
		var (
			id  uuid.UUID
			row Row
		)
		if err := rows.Scan(&id, &row.ID, &row.Key); err != nil {
			return nil, err
		}
		keys[id] = row
	}
	return keys, rows.Err()
}
