package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// Callbacks that other plugins register, before and after ours.
func TestCallbacks(t *testing.T) {
	t.Parallel()
	const commit = "gorm:commit_or_rollback_transaction"
	fail := func(db *gorm.DB) { _ = db.AddError(errRefused) }
	raise := func(db *gorm.DB) {
		if o, ok := db.Statement.Dest.(*Order); ok {
			raising(o, "callback")
		}
	}
	runCases(t, map[string]func(b *bench){
		"a callback before the statement fails": func(b *bench) {
			b.ok(b.db.Callback().Create().Before("gorm:create").Register("test", fail))
			o := order("1", "a")
			require.ErrorIs(b.t, b.db.Create(o).Error, errRefused)
			b.want()
			b.pending(o, "a")
			assert.Zero(b.t, b.orders())
		},
		"a callback before all others fails": func(b *bench) {
			b.ok(b.db.Callback().Create().Before("*").Register("test", fail))
			o := order("1", "a")
			require.ErrorIs(b.t, b.db.Create(o).Error, errRefused)
			b.want()
			b.pending(o, "a")
		},
		"a callback after the capture fails": func(b *bench) {
			b.ok(b.db.Callback().Create().After("fanout:capture").Before(commit).Register("test", fail))
			o := order("1", "a")
			require.ErrorIs(b.t, b.db.Create(o).Error, errRefused)
			b.want()
			b.pending(o, "a")
			assert.Zero(b.t, b.orders())
		},
		"a callback after the capture fails inside a transaction": func(b *bench) {
			b.ok(b.db.Callback().Update().After("fanout:capture").Before(commit).Register("test", fail))
			o := order("1", "a")
			require.ErrorIs(b.t, b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create(o).Error)
				return tx.Model(raising(o, "b")).Update("status", "x").Error
			}), errRefused)
			b.want()
			b.pending(o, "a", "b")
		},
		"a callback after the capture fails without a default transaction": func(b *bench) {
			b.ok(b.db.Callback().Create().After("fanout:capture").Before(commit).Register("test", fail))
			o := order("1", "a")
			require.ErrorIs(b.t, b.db.Session(&gorm.Session{SkipDefaultTransaction: true}).Create(o).Error, errRefused)
			b.want()
			b.pending(o, "a")
			assert.Zero(b.t, b.orders())
		},
		"a callback after the commit fails": func(b *bench) {
			b.ok(b.db.Callback().Create().After(commit).Register("test", fail))
			o := order("1", "a")
			require.ErrorIs(b.t, b.db.Create(o).Error, errRefused)
			b.want("1: a") // what is committed is committed
			b.pending(o)
		},
		"a callback that raises before the statement": func(b *bench) {
			b.ok(b.db.Callback().Create().Before("gorm:create").Register("test", raise))
			b.ok(b.db.Create(order("1", "a")).Error)
			b.want("1: a", "1: callback")
		},
		"a callback that raises after the capture": func(b *bench) {
			b.ok(b.db.Callback().Create().After("fanout:capture").Before(commit).Register("test", raise))
			b.ok(b.db.Create(order("1", "a")).Error)
			b.want("1: a", "1: callback")
		},
		"a callback of another handle": func(b *bench) {
			b.ok(b.open(&gorm.Config{}).Callback().Create().Before("gorm:create").Register("test", fail))
			b.ok(b.db.Create(order("1", "a")).Error)
			b.want("1: a")
		},
		"the statement itself is replaced": func(b *bench) {
			b.ok(b.db.Callback().Create().Replace("gorm:create", func(db *gorm.DB) {
				db.Exec("INSERT INTO "+b.table(&Order{})+" (id) VALUES (?)", "1")
			}))
			o := order("1", "a")
			b.ok(b.db.Create(o).Error)
			assert.Equal(b.t, 1, b.orders())
			b.want("1: a")
			b.pending(o)
		},
	})
}
