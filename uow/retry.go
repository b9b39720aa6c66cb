package uow

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/internal/journal"
	"github.com/gorm-fanout/fanout/retry"
)

// The pause before a repeated attempt: doubling from the first, with half of it at random, so that
// two transactions that were in each other's way do not meet again.
const (
	firstPause = 10 * time.Millisecond
	maxPause   = time.Second
)

// retry runs a unit of work until it succeeds, fails for another reason, or has had its attempts.
func (s *settings) retry(ctx context.Context, db *gorm.DB, run func(*gorm.DB) error) error {
	pauses := retry.Policy{BaseDelay: firstPause, MaxDelay: maxPause, Jitter: 0.5}
	attempt := journal.FirstAttempt()
	defer func() { attempt.End() }() // also when a panic ends it
	for n := 1; ; n++ {
		err := run(db.WithContext(attempt.Context(ctx)))
		if err == nil || !s.repeats(err) {
			return err
		}
		if n == s.attempts {
			return fmt.Errorf("uow: given up after %d attempts: %w", n, err)
		}
		timer := time.NewTimer(pauses.Delay(n))
		select {
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(context.Cause(ctx), err)
		case <-timer.C:
			attempt = attempt.Next()
		}
	}
}

// IsConflict reports whether err, or one of those that it wraps or joins, says that a transaction
// lost against another one and can be run again: serialization failure and deadlock on PostgreSQL
// (SQLSTATE 40001, 40P01), deadlock and update conflict under snapshot isolation on SQL Server
// (1205, 3960, and our own 51205 for a deadlock of serialize_keys), deadlock, lock wait timeout, a row
// that has changed since the snapshot, and a failed certification in a cluster on MySQL and MariaDB
// (1213, 1205, 1020, 3101), a busy database on SQLite. Each driver is known by its own way to say so;
// none is linked here.
//
// Sources: PostgreSQL documentation, 13.5 Serialization Failure Handling; SQL Server error messages
// 1205 and 3960; MySQL server error messages and MariaDB error codes, of which the first two say "try
// restarting transaction"; SQLite result codes, SQLITE_BUSY (5).
func IsConflict(err error) bool {
	switch e := err.(type) { //nolint:errorlint // the tree is walked here: the first error of a driver in it need not be the one
	case nil:
		return false
	case interface{ SQLState() string }: // pgx, lib/pq
		return slices.Contains([]string{"40001", "40P01"}, e.SQLState())
	case interface{ SQLErrorNumber() int32 }:
		return slices.Contains([]int32{1205, 3960, 51205}, e.SQLErrorNumber())
	case interface{ Unwrap() error }:
		return IsConflict(e.Unwrap())
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), IsConflict)
	default:
		return isBusySQLite(err) || isConflictOnMySQL(err)
	}
}

// isConflictOnMySQL knows the errors of go-sql-driver/mysql and its relatives, which have a field.
func isConflictOnMySQL(err error) bool {
	v := reflect.Indirect(reflect.ValueOf(err))
	if !v.IsValid() || !strings.Contains(v.Type().PkgPath(), "mysql") {
		return false
	}
	number := fieldOf(v, "Number")
	return number.CanUint() && slices.Contains([]uint64{1020, 1205, 1213, 3101}, number.Uint())
}

// isBusySQLite knows the errors of modernc.org/sqlite and its relatives, which have a method Code,
// and those of mattn/go-sqlite3, which have a field.
func isBusySQLite(err error) bool {
	v := reflect.Indirect(reflect.ValueOf(err))
	if !v.IsValid() || !strings.Contains(v.Type().PkgPath(), "sqlite") {
		return false
	}
	code := int64(0)
	if e, ok := err.(interface{ Code() int }); ok {
		code = int64(e.Code())
	} else if field := fieldOf(v, "Code"); field.CanInt() {
		code = field.Int()
	}
	return code&0xff == 5 // the low byte is the primary code
}

func fieldOf(v reflect.Value, name string) reflect.Value {
	if v.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return v.FieldByName(name)
}
