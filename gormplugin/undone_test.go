package gormplugin_test

import (
	"context"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/uow"
)

// try is a transaction in which an aggregate raises something, is saved, and which then fails.
func (b *bench) try(o *Order, what ...string) {
	b.t.Helper()
	require.ErrorIs(b.t, b.db.Transaction(func(tx *gorm.DB) error {
		b.ok(tx.Save(raising(o, what...)).Error)
		return errRefused
	}), errRefused)
}

// What becomes of events that were raised in work which was rolled back.
func TestUndone(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"a loop around a transaction sends one event, with the id of the first try": func(b *bench) {
			o, tries := order("1"), 0
			for range 3 {
				err := b.db.Transaction(func(tx *gorm.DB) error {
					b.ok(tx.Save(raising(o, "paid")).Error)
					if tries++; tries < 3 {
						return errRefused
					}
					return nil
				})
				require.Equal(b.t, tries == 3, err == nil)
				if tries == 1 {
					defer func(id string) { require.Equal(b.t, id, b.rows()[0].MessageID) }(idOf(o))
				}
			}
			b.want("1: paid")
			b.pending(o)
			assert.Equal(b.t, 1, strings.Count(b.log.String(), "event raised again after a rollback: sent once"))
		},
		"each try says something else": func(b *bench) {
			o := order("1")
			for _, what := range []string{"paid at 1", "paid at 2"} {
				b.try(o, what)
			}
			b.ok(b.db.Transaction(func(tx *gorm.DB) error { return tx.Save(raising(o, "paid at 3")).Error }))
			b.want("1: paid at 3")
			b.pending(o)
		},
		"a loop whose statement fails": func(b *bench) {
			b.ok(b.db.Create(&Ticket{ID: 1, Name: "taken"}).Error)
			ticket := &Ticket{ID: 2, Name: "taken"}
			for try := range 3 {
				_ = b.db.Transaction(func(tx *gorm.DB) error {
					raising(ticket, "sold")
					if try == 2 {
						ticket.Name = "free"
					}
					return tx.Create(ticket).Error
				})
			}
			b.want("2: sold")
		},
		"a loop whose work panics": func(b *bench) {
			o := order("1")
			require.Panics(b.t, func() {
				_ = b.db.Transaction(func(tx *gorm.DB) error {
					b.ok(tx.Save(raising(o, "paid")).Error)
					panic("boom")
				})
			})
			b.ok(b.db.Transaction(func(tx *gorm.DB) error { return tx.Save(raising(o, "paid")).Error }))
			b.want("1: paid")
		},
		"nested transactions in a loop": func(b *bench) {
			o := order("1")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create(o).Error)
				for try := range 3 {
					_ = tx.Transaction(func(tx *gorm.DB) error {
						b.ok(tx.Save(raising(o, "paid at "+strconv.Itoa(try))).Error)
						if try < 2 {
							return errRefused
						}
						return nil
					})
				}
				return nil
			}))
			b.want("1: paid at 2")
			b.pending(o)
		},
		"one savepoint in a loop": func(b *bench) {
			o := order("1")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.SavePoint("again").Error)
				for try := range 3 {
					b.ok(tx.Save(raising(o, "paid")).Error)
					if try < 2 {
						b.ok(tx.RollbackTo("again").Error)
					}
				}
				return nil
			}))
			b.want("1: paid")
			b.pending(o)
		},
		"a hook raises in a save that fails and is tried again": func(b *bench) {
			o := &Hooked{ID: "1"}
			fails := true
			o.Act = func(stage string, _ *gorm.DB) error {
				switch {
				case stage == "BeforeCreate":
					raising(o, "hooked")
				case stage == "AfterCreate" && fails:
					return errRefused
				}
				return nil
			}
			require.ErrorIs(b.t, b.db.Create(o).Error, errRefused)
			fails = false
			b.ok(b.db.Create(o).Error)
			b.want("1: hooked")
		},
		"raised before the transaction, which fails and is tried again": func(b *bench) {
			o := order("1", "placed")
			id := idOf(o)
			b.try(o)
			b.ok(b.db.Save(o).Error)
			b.want("1: placed")
			require.Equal(b.t, id, b.rows()[0].MessageID)
		},
		"raised before the transaction, and again in it": func(b *bench) {
			o := order("1", "line added")
			b.try(o)
			b.ok(b.db.Transaction(func(tx *gorm.DB) error { return tx.Save(raising(o, "line added")).Error }))
			b.want("1: line added", "1: line added")
			assert.NotContains(b.t, b.log.String(), "raised again")
		},
		"saved again without raising": func(b *bench) {
			o := order("1")
			b.try(o, "paid")
			id := idOf(o)
			b.ok(b.db.Save(o).Error)
			b.want("1: paid")
			require.Equal(b.t, id, b.rows()[0].MessageID)
		},
		"something else is raised before it is saved again": func(b *bench) {
			o := order("1")
			b.try(o, "line 1 added")
			b.ok(b.db.Save(raising(o, "line 2 added")).Error)
			b.want("1: line 1 added", "1: line 2 added")
		},
		"an event of another type is no repetition": func(b *bench) {
			o := order("1")
			b.try(o, "paid")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				o.Raise(OrderShipped{"1"})
				return tx.Save(o).Error
			}))
			b.want("1: paid", "OrderShipped 1")
		},
		"one of two is raised again": func(b *bench) {
			o := order("1")
			b.try(o, "a", "b")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error { return tx.Save(raising(o, "b")).Error }))
			b.want("1: a", "1: b")
			b.pending(o)
		},
		"loaded again, it is as the database has it": func(b *bench) {
			o := order("1")
			b.ok(b.db.Create(o).Error)
			raising(o, "before")
			b.try(o, "paid")
			b.pending(o, "before", "paid")
			b.ok(b.db.First(o).Error)
			b.pending(o, "before")
			b.ok(b.db.Save(o).Error)
			b.want("1: before")
		},
		"loaded again in the same transaction": func(b *bench) {
			o := order("1")
			b.ok(b.db.Create(o).Error)
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				require.ErrorIs(b.t, tx.Transaction(func(tx *gorm.DB) error {
					b.ok(tx.Save(raising(o, "paid")).Error)
					return errRefused
				}), errRefused)
				b.ok(tx.First(o).Error)
				return tx.Save(o).Error
			}))
			b.want()
			b.pending(o)
		},
		"a part of it is loaded again": func(b *bench) {
			o := order("1")
			b.ok(b.db.Create(o).Error)
			b.try(o, "paid")
			b.ok(b.db.Select("customer").First(o).Error)
			b.pending(o, "paid")
		},
		"discarded": func(b *bench) {
			o, other := order("1"), order("2", "kept")
			b.try(o, "paid")
			uow.Discard(o)
			b.pending(o)
			b.ok(b.db.Create([]*Order{o, other}).Error)
			b.want("2: kept")
			uow.Discard(&Pointed{ID: "raised nothing"})
		},
		"events of a repeated transaction are counted from one": func(b *bench) {
			account := &Account{Bank: "b", Number: 1, Version: 1}
			require.ErrorIs(b.t, b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create(raising(account, "a", "b")).Error)
				return errRefused
			}), errRefused)
			b.ok(b.db.Transaction(func(tx *gorm.DB) error { return tx.Create(raising(account, "b", "c")).Error }))
			b.want("b,1: b", "b,1: c")
			assert.Equal(b.t, []any{"1.1", "1.2"}, b.sequences())
		},
	})
}

// What is raised between a save and a statement that misses waits for one that hits.
func TestRaisedBeforeAMiss(t *testing.T) {
	t.Parallel()
	miss := func(b *bench, tx *gorm.DB, o *Order) {
		b.t.Helper()
		missed := tx.Model(o).Where("status = ?", "nobody's").Update("status", "paid")
		b.ok(missed.Error)
		require.Zero(b.t, missed.RowsAffected)
	}
	cases := map[string]func(b *bench){
		"the miss is the last": func(b *bench) {
			o := order("1", "placed")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Save(o).Error)
				miss(b, tx, raising(o, "paid"))
				return nil
			}))
			b.want("1: placed")
			b.pending(o, "paid")
			assert.Contains(b.t, b.log.String(), "events left pending")
			assert.EqualValues(b.t, 1, b.plugin.EventsLeftPending())
		},
		"another statement hits": func(b *bench) {
			o := order("1", "placed")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Save(o).Error)
				miss(b, tx, raising(o, "paid"))
				return tx.Save(o).Error
			}))
			b.want("1: placed", "1: paid")
			assert.NotContains(b.t, b.log.String(), "left pending")
		},
		"raised after it": func(b *bench) {
			o := order("1", "placed")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Save(o).Error)
				miss(b, tx, o)
				raising(o, "noted")
				return nil
			}))
			b.want("1: placed", "1: noted")
		},
		"a savepoint takes the miss back": func(b *bench) {
			o := order("1", "placed")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Save(o).Error)
				raising(o, "paid")
				require.ErrorIs(b.t, tx.Transaction(func(tx *gorm.DB) error {
					miss(b, tx, o)
					return errRefused
				}), errRefused)
				return nil
			}))
			b.want("1: placed", "1: paid")
		},
		"a savepoint takes the hit back": func(b *bench) {
			o := order("1", "placed")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Save(o).Error)
				miss(b, tx, raising(o, "paid"))
				require.ErrorIs(b.t, tx.Transaction(func(tx *gorm.DB) error {
					b.ok(tx.Save(o).Error)
					return errRefused
				}), errRefused)
				return nil
			}))
			b.want("1: placed")
			b.pending(o, "paid")
		},
		"one of a batch": func(b *bench) {
			o, other := order("1", "placed"), order("2")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create([]*Order{o, other}).Error)
				miss(b, tx, raising(o, "paid"))
				raising(other, "noted")
				return nil
			}))
			b.want("1: placed", "2: noted")
			b.pending(o, "paid")
		},
	}
	runCases(t, cases)
	onEach(t, func(b *bench) {
		o := order("1", "placed")
		var pending *gormplugin.PendingError
		require.ErrorAs(b.t, b.db.Transaction(func(tx *gorm.DB) error {
			b.ok(tx.Save(o).Error)
			miss(b, tx, raising(o, "paid"))
			return nil
		}), &pending)
		require.Equal(b.t, map[string]int{"Order": 1}, pending.Aggregates)
		b.want()
		b.pending(o, "placed", "paid")
	}, gormplugin.WithStrict())
}

// A savepoint costs the same whatever the transaction has done before.
func TestSavepointsCostNoMoreTheMoreThereAre(t *testing.T) { // not parallel: other tests would be counted too
	at := startSQLite(t)(t)
	run(t, at, func(b *bench) {
		allocated := func(n int) float64 {
			orders := make([]*Order, n)
			for i := range orders {
				orders[i] = order("nobody's " + strconv.Itoa(i))
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				for _, o := range orders {
					b.ok(tx.Transaction(func(tx *gorm.DB) error { return tx.Model(o).UpdateColumn("status", "x").Error }))
				}
				return nil
			}))
			runtime.ReadMemStats(&after)
			return float64(after.TotalAlloc-before.TotalAlloc) / float64(n)
		}
		allocated(10)
		few, many := allocated(250), allocated(2000)
		require.InEpsilon(b.t, few, many, 0.2, "bytes for each nested transaction")
	}, nil)
}

// What is emitted is what the attempt raised that committed.
func TestRetryEmitsWhatTheLastAttemptRaised(t *testing.T) {
	t.Parallel()
	type attempt func(b *bench, tx *gorm.DB, o *Order) error
	saves := func(_ *bench, tx *gorm.DB, o *Order) error { return tx.Save(o).Error }
	for name, c := range map[string]struct {
		first, second attempt
		want          []string
	}{
		"the first fails before any statement": {
			first: func(_ *bench, _ *gorm.DB, o *Order) error { raising(o, "paid"); return nil },
			second: func(b *bench, tx *gorm.DB, o *Order) error {
				o.Raise(OrderShipped{"1"})
				return saves(b, tx, o)
			},
			want: []string{"OrderShipped 1"},
		},
		"the second raises nothing": {
			first:  func(_ *bench, _ *gorm.DB, o *Order) error { raising(o, "paid"); return nil },
			second: saves,
		},
		"the second raises after its save": {
			first: func(_ *bench, _ *gorm.DB, o *Order) error { raising(o, "a", "b"); return nil },
			second: func(b *bench, tx *gorm.DB, o *Order) error {
				err := saves(b, tx, o)
				raising(o, "b")
				return err
			},
			want: []string{"1: b"},
		},
		"the first fails after its save": {
			first:  func(b *bench, tx *gorm.DB, o *Order) error { return saves(b, tx, raising(o, "paid")) },
			second: saves,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(b *bench) {
				o, n := order("1"), 0
				b.ok(uow.Do(context.Background(), b.db, func(u *uow.Unit) error {
					if n++; n == 1 {
						b.ok(c.first(b, u.DB, o))
						return conflict("40001")
					}
					return c.second(b, u.DB, o)
				}, uow.WithRetry(3)))
				b.want(c.want...)
				b.pending(o)
			})
		})
	}
}
