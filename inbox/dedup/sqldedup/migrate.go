package sqldedup

import (
	"context"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"
)

// Migrate brings the schema up to date, in one transaction, and returns the names of the steps that
// it has applied. Several processes can do so at a time. The clock is this process's; the account
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
	err = plain(db).WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Exec(t.lock, named{"name": t.table + "_migrations"}).Error; err != nil {
			return fmt.Errorf("lock: %w", err)
		}
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
			for _, statement := range statementsOf(step) {
				if err := tx.Exec(statement).Error; err != nil {
					return fmt.Errorf("step %s: %w", step, err)
				}
			}
			if err := tx.Exec(t.record, named{"version": step.Version, "name": step.Name, "at": t.time(time.Now())}).Error; err != nil {
				return fmt.Errorf("step %s: record: %w", step, err)
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
