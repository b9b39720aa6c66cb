package gormplugin_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// saveValue is a repository that takes values.
func saveValue(db *gorm.DB, o Order) error { return db.Save(&o).Error }

// paid raises on a copy, as a method with a value receiver does, and what it returns is ignored.
func paid(o Order) Order {
	o.Raise(Happened{"a"})
	return o
}

// goesBack runs a transaction, or a part of one, that fails.
func (b *bench) goesBack(tx *gorm.DB, f func(tx *gorm.DB)) {
	b.t.Helper()
	require.ErrorIs(b.t, tx.Transaction(func(tx *gorm.DB) error {
		f(tx)
		return errRefused
	}), errRefused)
}

// Requests that have copies of one aggregate from a cache share its list of events: what one of them
// raises, and rolls back, is none of the others'.
func TestCopiesFromACache(t *testing.T) {
	t.Parallel()
	cached := map[string]func(b *bench) *Order{
		"loaded": func(b *bench) *Order {
			b.ok(b.db.Create(order("1")).Error)
			o := &Order{}
			b.ok(b.db.First(o).Error)
			return o
		},
		"created": func(b *bench) *Order {
			o := order("1", "created")
			b.ok(b.db.Create(o).Error)
			b.ok(b.db.Exec("DELETE FROM " + b.at.outbox()).Error)
			return o
		},
	}
	cases := map[string]func(b *bench, cache *Order){
		"one rolls back before the other begins": func(b *bench, cache *Order) {
			first, second := *cache, *cache
			b.try(&first, "a")
			b.ok(b.db.Save(raising(&second, "b")).Error)
			b.want("1: b")
			b.pending(&second)
			b.ok(b.db.Save(&first).Error)
			b.want("1: b", "1: a")
			b.pending(&first)
		},
		"one rolls back after the other": func(b *bench, cache *Order) {
			first, second := *cache, *cache
			if b.dialect == outbox.SQLite {
				return // which has one writer at a time
			}
			tx := b.db.Begin()
			b.ok(tx.Error)
			b.ok(tx.Save(raising(&first, "a")).Error)
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(uow.Track(tx, raising(&second, "b")))
				return nil
			}))
			b.ok(tx.Rollback().Error)
			b.want("1: b")
			b.ok(b.db.Save(&first).Error)
			b.want("1: b", "1: a")
		},
		"one goes back to a savepoint, and the other is saved behind it": func(b *bench, cache *Order) {
			first, second := *cache, *cache
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.goesBack(tx, func(tx *gorm.DB) { b.ok(tx.Save(raising(&first, "a")).Error) })
				return tx.Save(raising(&second, "b")).Error
			}))
			b.want("1: b")
			b.pending(&second)
			b.pending(&first, "a")
			assert.EqualValues(b.t, 1, b.plugin.EventsLeftPending(), "second may have been copied from first")
			b.ok(b.db.Save(&first).Error)
			b.want("1: b", "1: a")
		},
		"a nested transaction with a value is repeated, and raises again": func(b *bench, cache *Order) {
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Model(cache).Update("status", "paying").Error)
				for try := range 3 {
					if err := tx.Transaction(func(tx *gorm.DB) error {
						o := *cache
						b.ok(tx.Save(raising(&o, "a")).Error)
						if try < 2 {
							return errRefused
						}
						return nil
					}); err == nil {
						return nil
					}
				}
				return nil
			}))
			b.want("1: a")
			assert.EqualValues(b.t, 2, b.plugin.EventsRaisedAgain())
		},
		"each says that its list is its own": func(b *bench, cache *Order) {
			first, second := *cache, *cache
			first.Aggregate, second.Aggregate = uow.Aggregate{}, uow.Aggregate{}
			b.try(&first, "a")
			b.ok(b.db.Save(raising(&second, "b")).Error)
			b.want("1: b")
			b.pending(&first, "a")
			b.pending(&second)
		},
		"a value that is given by value is repeated": func(b *bench, cache *Order) {
			o := *cache
			raising(&o, "a")
			b.goesBack(b.db, func(tx *gorm.DB) { b.ok(saveValue(tx, o)) })
			err := saveValue(b.db, o)
			require.ErrorAs(b.t, err, new(*uow.SharedEventsError))
			assert.Contains(b.t, err.Error(), "uow.Discard")
			b.want()
			b.pending(&o, "a")
			b.ok(b.db.Save(&o).Error)
			b.want("1: a")
		},
		"methods with value receivers, tried again": func(b *bench, cache *Order) {
			for try := range 3 {
				_ = b.db.Transaction(func(tx *gorm.DB) error {
					paid(*cache)
					b.ok(tx.Save(cache).Error)
					if try < 2 {
						return errRefused
					}
					return nil
				})
			}
			b.want("1: a")
			b.pending(cache)
		},
	}
	all := map[string]func(b *bench){}
	for how, load := range cached {
		for name, test := range cases {
			all[name+", "+how] = func(b *bench) { test(b, load(b)) }
		}
	}
	runCases(t, all)
}

// An event of an aggregate that several transactions use at once is emitted or pending, once.
func TestOneAggregateInManyTransactions(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		o := order("1")
		b.ok(b.db.Create(o).Error)
		var (
			wg     sync.WaitGroup
			raised sync.Map
		)
		for worker := range 8 {
			wg.Go(func() {
				for round := range 10 {
					what := fmt.Sprint(worker, "/", round)
					_ = b.db.Transaction(func(tx *gorm.DB) error {
						raised.Store(what, true)
						o.Raise(Happened{what})
						// GORM's statements write its fields, too, which no two goroutines may.
						err := tx.Exec("UPDATE ? SET status = ? WHERE id = '1'", gorm.Expr(b.at.prefix+"orders"), what).Error
						if err == nil {
							err = uow.Track(tx, o)
						}
						if err != nil || round%2 > 0 {
							return errRefused
						}
						return nil
					})
				}
			})
		}
		wg.Wait()
		b.ok(b.db.Transaction(func(tx *gorm.DB) error { return uow.Track(tx, o) })) // what is pending
		b.pending(o)
		found := map[string]int{}
		for _, row := range b.rows() {
			found[part(internalOf(b.t, row), "data")["what"].(string)]++
		}
		want := map[string]int{}
		raised.Range(func(what, _ any) bool { want[what.(string)] = 1; return true })
		require.Len(b.t, want, 80)
		for what, n := range found {
			assert.Equal(b.t, 1, n, what)
		}
		assert.Equal(b.t, len(want), len(found)+int(b.plugin.EventsRaisedAgain()), "emitted, or raised again")
	})
}
