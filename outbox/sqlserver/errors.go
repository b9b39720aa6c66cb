package sqlserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/gorm-fanout/fanout/internal/dbtable"
	"github.com/gorm-fanout/fanout/internal/failure"
	"github.com/gorm-fanout/fanout/internal/store/contention"
	"github.com/gorm-fanout/fanout/outbox"
)

// The numbers under which our own SQL reports what went wrong.
const (
	errLockNotGranted = 50122 // sp_getapplock gave up
	errChanged        = 50123 // what was decided about has changed
)

// lockTimeout says that another session has locked a row.
const lockTimeout = 1222

// permissionDenied is what a user gets who may not read a table.
const permissionDenied = 229

// retry repeats a batch that the server has broken off in favour of another process, a few times.
func retry(ctx context.Context, f func() error) error {
	return contention.Retry(ctx, contention.Patience, func(err error) contention.Cause {
		if transient(err) {
			return contention.Lost // behind a lock it has waited already
		}
		return contention.None
	}, f)
}

// transient reports whether the server broke a batch off in favour of another transaction; nothing
// is wrong with it then.
func transient(err error) bool {
	return numbered(err,
		601,  // a dirty read met rows on the move
		1205, // deadlock victim
		lockTimeout,
		2627, // two wrote the same row at once: it is there now
		3960, // snapshot conflict
		errLockNotGranted, errChanged)
}

// numbered reports whether the server sent an error of one of the numbers. The last error of an
// answer is not always the one that tells what happened.
func numbered(err error, numbers ...int32) bool {
	var server mssql.Error
	if !errors.As(err, &server) {
		return false
	}
	if slices.Contains(numbers, server.Number) {
		return true
	}
	return slices.ContainsFunc(server.All, func(e mssql.Error) bool { return slices.Contains(numbers, e.Number) })
}

// explain adds the remedy to errors that an operator can act on.
func explain(err error) error {
	var remedy string
	switch {
	case numbered(err, 208) && strings.Contains(err.Error(), "OPENJSON"), numbered(err, 102, 319):
		remedy = "the store needs SQL Server 2016, a database compatibility level of 130 or higher, and a table name that is no reserved word"
	case numbered(err, dbtable.MissingNumbers...):
		return fmt.Errorf("%w: %w", err, outbox.ErrSchema)
	case numbered(err, 8622): // no plan with these hints
		remedy = "the indexes of the outbox table are not as the migration made them; compare them with \"fanout migrate --print\""
	case numbered(err, permissionDenied, 230, 262): // permission denied
		remedy = "grant the relay's user SELECT, INSERT, UPDATE and DELETE on the outbox tables"
	case numbered(err, 1934): // session options
		remedy = "open the database with github.com/microsoft/go-mssqldb; writers need ANSI_NULLS, ANSI_PADDING, ANSI_WARNINGS, " +
			"ARITHABORT, CONCAT_NULL_YIELDS_NULL and QUOTED_IDENTIFIER switched on (sqlcmd: option -I)"
	case numbered(err, 3906, 978): // read-only database, read-only replica
		remedy = errReplica.Error()
	case numbered(err, lockTimeout, errLockNotGranted):
		remedy = "another session holds its locks for long; look for an open transaction with sys.dm_tran_locks"
	default:
		return err
	}
	return failure.Advise(err, remedy)
}

// errReplica is the answer to a relay that was pointed at a readable secondary.
var errReplica = errors.New("the database is read-only: point the relay at the primary")
