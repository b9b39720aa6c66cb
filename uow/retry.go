package uow

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"gorm.io/gorm"
)

// The pause before a repeated attempt: doubling from the first, with half of it at random, so that two transactions that
// were in each other's way do not meet again.
const (
	firstPause = 10 * time.Millisecond
	maxPause   = time.Second
)

// retry runs a unit of work until it succeeds, fails for another reason, or has had its attempts.
func (s *settings) retry(ctx context.Context, db *gorm.DB, run func(*gorm.DB) error) error {
	pauses := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(firstPause), backoff.WithMultiplier(2), backoff.WithRandomizationFactor(0.5),
		backoff.WithMaxInterval(maxPause), backoff.WithMaxElapsedTime(0))
	attempt := firstAttempt()
	defer func() { attempt.end() }() // also when a panic ends it
	for n := 1; ; n++ {
		err := run(db.WithContext(context.WithValue(ctx, attemptKey{}, attempt)))
		if err == nil || !s.repeats(err) {
			return err
		}
		if n == s.attempts {
			return fmt.Errorf("uow: given up after %d attempts: %w", n, err)
		}
		timer := time.NewTimer(pauses.NextBackOff())
		select {
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(context.Cause(ctx), err)
		case <-timer.C:
			attempt = attempt.next()
		}
	}
}

// IsConflict reports whether err says that a transaction lost against another one and can be run again: serialization
// failure and deadlock on PostgreSQL (SQLSTATE 40001, 40P01), deadlock and update conflict under snapshot isolation on
// SQL Server (1205, 3960, and our own 51205 for a deadlock of serialize_keys), a busy database on SQLite. Each driver is known by its own way to say so; none is linked here.
//
// Sources: PostgreSQL documentation, 13.5 Serialization Failure Handling; SQL Server error messages 1205 and 3960; SQLite
// result codes, SQLITE_BUSY (5).
func IsConflict(err error) bool {
	var (
		postgres  interface{ SQLState() string }
		sqlServer interface{ SQLErrorNumber() int32 }
		sqlite    interface{ Code() int }
	)
	switch {
	case errors.As(err, &postgres):
		return slices.Contains([]string{"40001", "40P01"}, postgres.SQLState())
	case errors.As(err, &sqlServer):
		return slices.Contains([]int32{1205, 3960, 51205}, sqlServer.SQLErrorNumber())
	case errors.As(err, &sqlite):
		t := reflect.TypeOf(sqlite)
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		return strings.Contains(t.PkgPath(), "sqlite") && sqlite.Code()&0xff == 5 // the low byte is the primary code
	default:
		return false
	}
}
