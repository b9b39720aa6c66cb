package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/gorm-fanout/fanout/internal/sqladmin"
	"github.com/gorm-fanout/fanout/internal/store/contention"
	"github.com/gorm-fanout/fanout/outbox"
)

// administration is what operators and housekeeping do, the same for all databases.
type administration = sqladmin.Admin

// database is how the administration reaches the table: by database/sql over the store's own pool,
// whose limits stay true.
type database struct{ *Store }

// Read implements sqladmin.Database.
func (d database) Read(ctx context.Context, purpose sqladmin.Purpose, work sqladmin.Work) error {
	return d.repeatedly(ctx, func(conn *sql.Conn) error {
		if purpose == sqladmin.Plain {
			return work(ctx, conn)
		}
		return transact(ctx, conn, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}, work)
	})
}

// Write implements sqladmin.Database. A single statement is a transaction of its own: heartbeats
// are most of what a relay says that has nothing to do. Only where the server's isolation level
// stands against it, it is said again in a transaction of ours.
func (d database) Write(ctx context.Context, purpose sqladmin.Purpose, work sqladmin.Work) error {
	plain := purpose == sqladmin.Plain
	return d.repeatedly(ctx, func(conn *sql.Conn) error {
		if plain {
			plain = false
			return work(ctx, conn)
		}
		return transact(ctx, conn, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, work)
	})
}

// repeatedly runs f on a connection of the pool. It repeats what the server has broken off in
// favour of others, and what it was not told since the connection had died.
func (d database) repeatedly(ctx context.Context, f func(*sql.Conn) error) error {
	// An open handle keeps a goroutine. Making one costs nothing.
	db := stdlib.OpenDBFromPool(d.pool)
	defer db.Close()
	return explain(contention.Retry(ctx, d.patience, func(err error) contention.Cause {
		if errors.Is(err, driver.ErrBadConn) {
			return contention.Lost
		}
		return brokenOff(err)
	}, func() error { return d.once(ctx, db, f) }))
}

func (d database) once(ctx context.Context, db *sql.DB, f func(*sql.Conn) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", redact(err))
	}
	defer conn.Close() // one inside of a failed transaction is closed, not reused
	if err = f(conn); err == nil || ctx.Err() != nil {
		return err
	}
	closed := false
	_ = conn.Raw(func(c any) error {
		conn, ok := c.(*stdlib.Conn)
		closed = ok && conn.Conn().IsClosed()
		return nil
	})
	if closed { // the server has probably ended the idle ones, too: each of them would fail once
		d.pool.Reset()
	}
	return err
}

func transact(ctx context.Context, conn *sql.Conn, options *sql.TxOptions, work sqladmin.Work) error {
	tx, err := conn.BeginTx(ctx, options)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // unless it has ended
	if err := work(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// Bind implements sqladmin.Database. Lists are arrays.
func (database) Bind(name string, value any) []sql.NamedArg {
	switch v := value.(type) {
	case sqladmin.Text:
		value = v.Storable()
	case sqladmin.List:
		value = v.Items
	case time.Duration:
		value = v.Microseconds()
	case time.Time:
		if v.IsZero() {
			value = nil
		}
	}
	return []sql.NamedArg{sql.Named(name, value)}
}

// ShardLocks implements sqladmin.Database.
func (database) ShardLocks(brokers []string) sqladmin.List {
	var locks []int32
	for _, broker := range slices.Compact(slices.Sorted(slices.Values(brokers))) {
		for shard := range outbox.Shards { // those of other classes share them
			locks = append(locks, shardLock(broker, shard))
		}
	}
	slices.Sort(locks)
	return sqladmin.List{Items: slices.Compact(locks)}
}

// Marks implements sqladmin.Database.
func (d database) Marks(brokers ...string) map[string]any {
	all := d.water.known(brokers)
	return map[string]any{
		"floors": sqladmin.List{Items: all.floors}, "versions": sqladmin.List{Items: all.versions}, "above": sqladmin.List{Items: all.above},
		"writers": sqladmin.List{Items: all.writers}, "sessions": sqladmin.List{Items: all.sessions},
	}
}

// Denied implements sqladmin.Database.
func (database) Denied(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == insufficientPrivilege
}
