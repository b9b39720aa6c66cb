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

// chain is a place in one of GORM's callback chains.
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

// placesIn are where another plugin may put its callback.
func placesIn[C chain](processor interface {
	Before(name string) C
	After(name string) C
}, kind string,
) map[string]chain {
	places := map[string]chain{}
	for _, at := range []string{"*", "gorm:begin_transaction", "gorm:" + kind, "gorm:after_" + kind, "gorm:commit_or_rollback_transaction"} {
		places["Before "+at], places["After "+at] = processor.Before(at), processor.After(at)
	}
	return places
}

func placesOf(db *gorm.DB, kind string) map[string]chain {
	switch callbacks := db.Callback(); kind {
	case "create":
		return placesIn(callbacks.Create(), kind)
	case "update":
		return placesIn(callbacks.Update(), kind)
	default:
		return placesIn(callbacks.Delete(), kind)
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
	sessions := []gorm.Session{{}, {SkipDefaultTransaction: true}, {PrepareStmt: true, SkipDefaultTransaction: true}}
	cases := map[string]func(b *bench){}
	for kind, statement := range statements {
		for when, before := range map[string]bool{"registered before the plugin": true, "registered after it": false} {
			cases[kind+", "+when] = func(b *bench) {
				b.not(outbox.SQLServer, "its handle is opened in one way only")
				db := b.open(&gorm.Config{})
				var armed atomic.Pointer[string]
				register := func() {
					for place, chain := range placesOf(db, kind) {
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
				for place := range placesOf(db, kind) {
					for _, session := range sessions {
						b.ok(db.Exec("DELETE FROM " + b.table(&Order{})).Error)
						if kind != "create" {
							b.stored("1")
						}
						b.purge(b.db)
						o := order("1", "a")
						armed.Store(&place)
						require.PanicsWithValue(b.t, place, func() { _ = statement(db.Session(&session), o) }, place)
						require.Zero(b.t, pool.Stats().InUse, place)
						armed.Store(nil)
						if b.written(kind) { // GORM puts many of them after the commit, whatever they ask for
							require.Equal(b.t, []string{"1: a"}, b.emitted(), place)
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
	cases["a callback that ends the goroutine"] = func(b *bench) {
		b.ok(b.db.Callback().Create().Before("gorm:create").Register("other", func(*gorm.DB) { runtime.Goexit() }))
		var ended sync.WaitGroup
		ended.Go(func() { b.db.Create(order("1", "a")) })
		ended.Wait()
		b.settled()
	}
	runCases(t, cases)
}
