package gormplugin_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/assert"
	"gorm.io/gorm"
)

// What is asked of a transaction that has ended, by what runs after its commit or by whoever kept the handle.
func TestTransactionsThatHaveEnded(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"a function after the commit ends the transaction once more": func(b *bench) {
			tx := b.db.Begin()
			b.ok(tx.Create(order("1", "a")).Error)
			b.ok(b.plugin.AfterCommit(tx, func() {
				assert.ErrorIs(b.t, tx.Session(&gorm.Session{}).Rollback().Error, sql.ErrTxDone)
				assert.ErrorIs(b.t, tx.Session(&gorm.Session{}).Commit().Error, sql.ErrTxDone)
			}))
			b.ok(tx.Commit().Error)
			b.want("1: a")
		},
		"a listener ends the transaction once more": func(b *bench) {
			tx := b.db.Begin()
			b.plugin.OnCommit(func([]string) { assert.ErrorIs(b.t, tx.Session(&gorm.Session{}).Rollback().Error, sql.ErrTxDone) })
			b.ok(tx.Create(order("1", "a")).Error)
			b.ok(tx.Commit().Error)
			b.want("1: a")
		},
	})
}
