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
		"a callback after the commit fails": func(b *bench) {
			b.ok(b.db.Callback().Create().After(commit).Register("test", fail))
			o := order("1", "a")
			require.ErrorIs(b.t, b.db.Create(o).Error, errRefused)
			b.want("1: a") // what is committed is committed
			b.pending(o)
		},
		"a callback that raises after the capture": func(b *bench) {
			b.ok(b.db.Callback().Create().After("fanout:capture").Before(commit).Register("test", raise))
			b.ok(b.db.Create(order("1", "a")).Error)
			b.want("1: a", "1: callback")
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
