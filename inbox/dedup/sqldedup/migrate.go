package sqldedup

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/internal/dbtable"
	"github.com/gorm-fanout/fanout/internal/schemacheck"
)

// releaseTimeout bounds giving back the lock of a migration.
const releaseTimeout = 5 * time.Second

// Migrate brings the schema up to date, in one transaction, and returns the names of the steps that
// it has applied, none if there was nothing to do. A table that another migration tool has made from
// [Migrations] is recorded, and its steps are returned as "0001_deduplication is already there,
// recorded"; the error names how a table differs that is neither. On MySQL, where making a table ends
// a transaction, each step commits by itself. Several processes can do so at a time. The clock is this
// process's; the account needs the right to create tables.
func Migrate(ctx context.Context, db *gorm.DB, opts ...Option) (applied []string, err error) {
	t, err := textsOf(db, opts)
	if err != nil {
		return nil, err
	}
	steps, err := Migrations(t.dialect, t.table)
	if err != nil {
		return nil, err
	}
	err = t.locked(ctx, plain(db).WithContext(ctx), func(tx *gorm.DB) error {
		if err := tx.Exec(t.steps).Error; err != nil {
			return fmt.Errorf("record of steps: %w", err)
		}
		var done []int
		if err := tx.Raw(t.applied).Scan(&done).Error; err != nil {
			return fmt.Errorf("record of steps: %w", err)
		}
		there, err := t.there(ctx, tx, steps, done)
		if err != nil {
			return err
		}
		applied, err = dbtable.Apply(steps, done, there, func(step Migration) error {
			for _, statement := range statementsOf(step) {
				if err := tx.Exec(statement).Error; err != nil {
					return err
				}
			}
			return nil
		}, func(step Migration) error {
			return tx.Exec(t.record, named{"version": step.Version, "name": step.Name, "at": t.time(time.Now())}).Error
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("sqldedup: migrate %s: %w", t.table, err)
	}
	return applied, nil
}

// there are the steps that another tool has applied.
func (t *texts) there(ctx context.Context, tx *gorm.DB, steps []Migration, done []int) ([]int, error) {
	there, strange, err := dbtable.There(steps, done, func(first []Migration) (dbtable.Comparison, error) {
		return schemacheck.Outline(ctx, tx.Statement.ConnPool, schemacheck.Dialect(t.dialect), t.table, first...)
	})
	if err == nil && len(strange) > 0 {
		err = fmt.Errorf("a table is there that is not what the steps make (%s), and nothing of it was changed: if another tool made it, "+
			"bring it to what sqldedup.Migrations returns, and migrate again, which records it; otherwise rename it, or choose another name (sqldedup.WithTable)",
			strings.Join(strange, "; "))
	}
	return there, err
}

// locked runs f while no other process migrates the table.
func (t *texts) locked(ctx context.Context, db *gorm.DB, f func(tx *gorm.DB) error) error {
	name := named{"name": t.table + "_migrations"}
	if t.dialect == mySQL {
		return db.Connection(func(session *gorm.DB) error { return t.lockedByName(ctx, session, name, f) })
	}
	return db.Transaction(func(tx *gorm.DB) error {
		if err := tx.Exec(t.lock, name).Error; err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		return f(tx)
	})
}

// lockedByName runs f while the session has the lock.
func (t *texts) lockedByName(ctx context.Context, session *gorm.DB, name named, f func(session *gorm.DB) error) (err error) {
	var granted, released sql.NullBool // NULL: the server failed to
	if err := session.Raw(t.lock, name).Scan(&granted).Error; err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	if !granted.Bool {
		return errors.New("another migration holds the lock")
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		problem := session.WithContext(ctx).Raw(t.release, name).Scan(&released).Error
		if conn, ok := session.Statement.ConnPool.(*sql.Conn); ok && (problem != nil || !released.Bool) {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // the connection is closed, and the lock goes with it
		}
	}()
	return f(session)
}
