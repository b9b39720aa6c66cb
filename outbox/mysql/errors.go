package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"

	"github.com/go-sql-driver/mysql"

	"github.com/gorm-fanout/fanout/internal/dbtable"
	"github.com/gorm-fanout/fanout/internal/failure"
	"github.com/gorm-fanout/fanout/internal/store/claims"
	"github.com/gorm-fanout/fanout/internal/store/contention"
	"github.com/gorm-fanout/fanout/outbox"
)

// brokenOff says why the server broke off a statement or a transaction. Error 1205 says that another session has
// locked a row. MariaDB sends it at once. MySQL sends it after innodb_lock_wait_timeout, and so do both for the lock
// of a shard.
func brokenOff(err error) contention.Cause {
	switch {
	case numbered(err, 1205):
		return contention.Locked
	case numbered(err,
		1020, // a row has changed since the transaction's snapshot (MariaDB, innodb_snapshot_isolation)
		1047, // a node of a Galera cluster is not ready
		1062, // two wrote the same row at once: it is there now
		1213, // deadlock victim, or certification failure of Galera
		3100, // group replication: a hook failed before the commit
		3101, // group replication: certification failure
	):
		return contention.Lost
	default:
		return contention.None
	}
}

// retry repeats what the server has broken off in favour of another transaction.
func retry(ctx context.Context, f func() error) error {
	return contention.Retry(ctx, contention.Patience, brokenOff, f)
}

// completing writes outcomes, and tries again where the server prefers another transaction or another session has
// the lock of the shard. It returns claims.ErrLocked where another session has locked a row.
func completing(ctx context.Context, f func() error) error {
	var locked error
	err := contention.Retry(ctx, contention.Patience, brokenOff, func() error {
		err := f()
		if brokenOff(err) == contention.Locked && !errors.Is(err, errShardHeld) {
			locked = fmt.Errorf("%w: %w", claims.ErrLocked, err)
			return nil
		}
		return err
	})
	return errors.Join(err, locked)
}

// decided runs what was decided, again and again while another transaction has the lock of the shard.
// Where the server has broken it off in favour of another transaction, it is claims.ErrConflict, and
// where another session has locked a row, claims.ErrLocked.
func decided(ctx context.Context, f func() error) error {
	err := contention.Retry(ctx, contention.Patience, func(err error) contention.Cause {
		if errors.Is(err, errShardHeld) {
			return contention.Locked
		}
		return contention.None
	}, f)
	switch cause := brokenOff(err); {
	case cause == contention.Lost:
		return claims.ErrConflict
	case cause == contention.Locked && !errors.Is(err, errShardHeld):
		return fmt.Errorf("%w: %w", claims.ErrLocked, err)
	}
	return err
}

// errShardHeld says that another transaction has the lock of a shard.
var errShardHeld = errors.New("the shard is locked")

// held marks the error of a statement that waited for the lock of a shard in vain.
func held(err error) error {
	if brokenOff(err) == contention.Locked {
		return fmt.Errorf("%w: %w", errShardHeld, err)
	}
	return err
}

// notUTF8 reports whether MySQL could not list its transactions or sessions, because one of them runs a text with
// bytes that are no UTF-8.
func notUTF8(err error) bool { return numbered(err, 3854) }

// numbered reports whether the server sent an error of one of the numbers.
func numbered(err error, numbers ...uint16) bool {
	var server *mysql.MySQLError
	return errors.As(err, &server) && slices.Contains(numbers, server.Number)
}

// explain adds the remedy to errors that an operator can act on.
func explain(err error) error {
	var remedy string
	switch {
	case err == nil:
		return nil
	case errors.Is(err, mysql.ErrInvalidConn), numbered(err,
		1053, // the server shuts down
		1927, // the connection was killed (MariaDB)
		3169, // the session was killed
	):
		return fmt.Errorf("%w: %w", err, driver.ErrBadConn) // as other drivers call it
	case dbtable.Missing(err):
		return fmt.Errorf("%w: %w", err, outbox.ErrSchema)
	case numbered(err, 1044, 1142, 1143): // permission denied
		remedy = "grant the relay's user SELECT, INSERT, UPDATE and DELETE on the outbox tables"
	case numbered(err, 1290, 1792, 1836): // read-only server, transaction, mode
		remedy = errReplica.Error()
	case numbered(err, 1205):
		remedy = "another session holds its locks for long; look for an open transaction in information_schema.innodb_trx"
	case numbered(err, 1153): // a packet that is too large
		remedy = "raise max_allowed_packet on the server, or send smaller messages"
	case numbered(err, 1064): // syntax
		remedy = "the store needs MySQL 8.0.22 or MariaDB 10.6, and a table name that is no reserved word"
	default:
		return err
	}
	return failure.Advise(err, remedy)
}

// errReplica is the answer to a relay that was pointed at a replica.
var errReplica = errors.New("the server is read-only: point the relay at the primary")
