package gormplugin_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/outbox"
)

// chain is the part of GORM's callback chains that is needed here.
type chain interface {
	Register(name string, f func(*gorm.DB)) error
}

// written reports whether the statement of a kind has changed the row of order 1.
func (b *bench) written(kind string) bool {
	b.t.Helper()
	var orders []Order
	b.ok(b.open(&gorm.Config{}).Find(&orders).Error)
	switch kind {
	case "create":
		return len(orders) == 1
	case "update":
		return orders[0].Status == "x"
	default:
		return len(orders) == 0
	}
}

// places are where another plugin may put its callback.
func (b *bench) places(db *gorm.DB, kind string) map[string]chain {
	create, update, remove := db.Callback().Create(), db.Callback().Update(), db.Callback().Delete()
	switch kind {
	case "create":
		return map[string]chain{
			"Before *": create.Before("*"), "Before gorm:begin_transaction": create.Before("gorm:begin_transaction"),
			"After gorm:begin_transaction": create.After("gorm:begin_transaction"), "Before gorm:create": create.Before("gorm:create"),
			"After gorm:create": create.After("gorm:create"), "After gorm:after_create": create.After("gorm:after_create"),
			"Before gorm:commit": create.Before("gorm:commit_or_rollback_transaction"), "After gorm:commit": create.After("gorm:commit_or_rollback_transaction"),
			"After *": create.After("*"), "anywhere": create,
		}
	case "update":
		return map[string]chain{
			"Before *": update.Before("*"), "After gorm:begin_transaction": update.After("gorm:begin_transaction"), "Before gorm:update": update.Before("gorm:update"),
			"After gorm:update": update.After("gorm:update"), "After gorm:after_update": update.After("gorm:after_update"),
			"Before gorm:commit": update.Before("gorm:commit_or_rollback_transaction"), "After *": update.After("*"), "anywhere": update,
		}
	default:
		return map[string]chain{
			"Before *": remove.Before("*"), "After gorm:begin_transaction": remove.After("gorm:begin_transaction"), "Before gorm:delete": remove.Before("gorm:delete"),
			"After gorm:delete": remove.After("gorm:delete"), "After gorm:after_delete": remove.After("gorm:after_delete"),
			"Before gorm:commit": remove.Before("gorm:commit_or_rollback_transaction"), "After *": remove.After("*"), "anywhere": remove,
		}
	}
}

// A panic in another plugin's callback, wherever that is in the chain and whenever it was
// registered, rolls back and gives the connection back.
func TestPanicsOfOtherPlugins(t *testing.T) {
	t.Parallel()
	statements := map[string]func(db *gorm.DB, o *Order) error{
		"create": func(db *gorm.DB, o *Order) error { return db.Create(o).Error },
		"update": func(db *gorm.DB, o *Order) error { return db.Model(o).Update("status", "x").Error },
		"delete": func(db *gorm.DB, o *Order) error { return db.Delete(o).Error },
	}
	sessions := map[string]gorm.Session{
		"": {}, ", no default transaction": {SkipDefaultTransaction: true}, ", prepared": {PrepareStmt: true, SkipDefaultTransaction: true},
	}
	cases := map[string]func(b *bench){}
	for kind, statement := range statements {
		for when, before := range map[string]bool{"registered before the plugin": true, "registered after it": false} {
			cases[kind+", "+when] = func(b *bench) {
				b.not(outbox.SQLServer, "its handle is opened in one way only")
				db := b.open(&gorm.Config{})
				var armed atomic.Pointer[string]
				register := func() {
					for place, chain := range b.places(db, kind) {
						b.ok(chain.Register("other:"+place, func(*gorm.DB) {
							if at := armed.Load(); at != nil && *at == place {
								panic(place)
							}
						}))
					}
				}
				if before {
					register()
				}
				b.use(db)
				if !before {
					register()
				}
				pool, err := db.DB()
				b.ok(err)
				rolledBack := 0
				for place := range b.places(db, kind) {
					for name, session := range sessions {
						b.ok(db.Exec("DELETE FROM " + b.table(&Order{})).Error)
						if kind != "create" {
							b.stored("1")
						}
						b.purge(b.db)
						o := order("1", "a")
						armed.Store(&place)
						require.PanicsWithValue(b.t, place, func() { _ = statement(db.Session(&session), o) }, place+name)
						require.Zero(b.t, pool.Stats().InUse, place+name)
						armed.Store(nil)
						// GORM puts many of them after the commit, whatever they ask for.
						if b.written(kind) {
							require.Equal(b.t, []string{"1: a"}, b.emitted(), place+name)
							b.pending(o)
							continue
						}
						rolledBack++
						b.want()
						b.pending(o, "a")
						b.ok(statement(db.Session(&session), o))
						b.want("1: a")
						require.True(b.t, b.written(kind))
					}
				}
				assert.NotZero(b.t, rolledBack)
			}
		}
	}
	cases["a callback that replaces another"] = func(b *bench) {
		original := b.db.Callback().Create().Get("gorm:create")
		b.ok(b.db.Callback().Create().Replace("gorm:create", func(db *gorm.DB) {
			original(db)
			if db.Statement.Table == b.table(&Order{}) {
				panic("replaced")
			}
		}))
		o := order("1", "a")
		require.PanicsWithValue(b.t, "replaced", func() { b.db.Session(&gorm.Session{SkipDefaultTransaction: true}).Create(o) })
		b.settled()
		assert.Zero(b.t, b.orders())
		b.pending(o, "a")
	}
	cases["a panic on one connection"] = func(b *bench) {
		b.ok(b.db.Callback().Create().After("gorm:create").Before("gorm:after_create").Register("other", func(*gorm.DB) { panic("other") }))
		o := order("1", "a")
		require.PanicsWithValue(b.t, "other", func() {
			_ = b.db.Connection(func(db *gorm.DB) error { return db.Create(o).Error })
		})
		b.settled()
		b.pending(o, "a")
	}
	cases["a panic of a statement on a model without events"] = func(b *bench) {
		b.ok(b.db.Callback().Create().Before("gorm:create").Register("other", func(*gorm.DB) { panic("other") }))
		require.PanicsWithValue(b.t, "other", func() { b.db.Create(&Plain{}) })
		b.settled()
	}
	cases["a callback that ends the goroutine"] = func(b *bench) {
		b.ok(b.db.Callback().Create().Before("gorm:create").Register("other", func(*gorm.DB) { runtime.Goexit() }))
		var ended sync.WaitGroup
		ended.Go(func() { b.db.Create(order("1", "a")) })
		ended.Wait()
		b.settled()
	}
	cases["a panic within a transaction is the transaction's"] = func(b *bench) {
		b.ok(b.db.Callback().Create().After("gorm:create").Register("other", func(db *gorm.DB) {
			if o, ok := db.Statement.Dest.(*Order); ok && o.ID == "2" {
				panic("other")
			}
		}))
		b.ok(b.db.Transaction(func(tx *gorm.DB) error {
			b.ok(tx.Create(order("1", "a")).Error)
			require.PanicsWithValue(b.t, "other", func() {
				_ = tx.Transaction(func(tx *gorm.DB) error { return tx.Create(order("2", "b")).Error })
			})
			return nil
		}))
		b.want("1: a")
	}
	runCases(t, cases)
}
