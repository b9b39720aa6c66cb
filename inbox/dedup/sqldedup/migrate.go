package sqldedup

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"
)

// releaseTimeout bounds giving back the lock of a migration.
const releaseTimeout = 5 * time.Second

// Migrate brings the schema up to date, in one transaction, and returns the names of the steps that
// it has applied. On MySQL, where making a table ends a transaction, each step commits by itself. Several processes can do so at a time. The clock is this process's; the account
// needs the right to create tables.
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
		for _, step := range steps {
			if slices.Contains(done, step.Version) {
				continue
			}
			if err := t.apply(tx, step); err != nil {
				return fmt.Errorf("step %s: %w", step, err)
			}
			applied = append(applied, step.String())
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("sqldedup: migrate %s: %w", t.table, err)
	}
	return applied, nil
}

// apply executes a step, and records it.
func (t *texts) apply(tx *gorm.DB, step Migration) error {
	for _, statement := range statementsOf(step) {
		if err := tx.Exec(statement).Error; err != nil {
			return err
		}
	}
	if t.dialect == mySQL { // there a step passes over a table that is there
		if err := tx.Exec(t.probe).Error; err != nil {
			return fmt.Errorf("a table is there that is not this one: rename it, or choose another name (sqldedup.WithTable): %w", err)
		}
	}
	if err := tx.Exec(t.record, named{"version": step.Version, "name": step.Name, "at": t.time(time.Now())}).Error; err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
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
