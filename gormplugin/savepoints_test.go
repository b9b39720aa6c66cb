package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// set and back are how the database at hand spells savepoints.
func (b *bench) set(name string) string {
	if b.dialect == outbox.SQLServer {
		return "SAVE TRANSACTION " + name
	}
	return "SAVEPOINT " + name
}

func (b *bench) back(name string) string {
	if b.dialect == outbox.SQLServer {
		return "ROLLBACK TRANSACTION " + name
	}
	return "ROLLBACK TO SAVEPOINT " + name
}

// release is the short form, where there is one.
func (b *bench) release(name string) string {
	if b.dialect == outbox.MySQL {
		return "RELEASE SAVEPOINT " + name
	}
	return "RELEASE " + name
}

// standard leaves a case out where its spelling is not the database's.
func (b *bench) standard() { b.not(outbox.SQLServer, "it says SAVE TRANSACTION, and knows no RELEASE") }

func TestSavepoints(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"raised before, inside and after a nested transaction that fails": func(b *bench) {
			o := order("1", "before")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create(o).Error)
				require.ErrorIs(b.t, tx.Transaction(func(tx *gorm.DB) error {
					b.ok(tx.Save(raising(o, "inside")).Error)
					return errRefused
				}), errRefused)
				raising(o, "after")
				return nil
			}))
			b.want("1: before", "1: after")
			b.pending(o, "inside")
			b.ok(b.db.Save(o).Error)
			b.want("1: before", "1: after", "1: inside")
		},
		"saved again after the rollback to a savepoint": func(b *bench) {
			o := order("1", "before")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create(o).Error)
				require.ErrorIs(b.t, tx.Transaction(func(tx *gorm.DB) error {
					b.ok(tx.Save(raising(o, "inside")).Error)
					return errRefused
				}), errRefused)
				return tx.Save(o).Error
			}))
			b.want("1: before", "1: inside")
			b.pending(o)
		},
		"created inside, rolled back, and created again": func(b *bench) {
			o := order("1", "a")
			id := idOf(o)
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				require.ErrorIs(b.t, tx.Transaction(func(tx *gorm.DB) error {
					b.ok(tx.Create(o).Error)
					return errRefused
				}), errRefused)
				return tx.Create(o).Error
			}))
			b.want("1: a")
			assert.Equal(b.t, id, b.rows()[0].MessageID)
		},
		"raised before the savepoint, saved only inside": func(b *bench) {
			o := order("1", "a")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				require.ErrorIs(b.t, tx.Transaction(func(tx *gorm.DB) error {
					b.ok(tx.Create(o).Error)
					return errRefused
				}), errRefused)
				return nil
			}))
			b.want()
			b.pending(o, "a")
		},
		"raised inside without a save": func(b *bench) {
			o := order("1", "before")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create(o).Error)
				require.ErrorIs(b.t, tx.Transaction(func(*gorm.DB) error {
					raising(o, "inside")
					return errRefused
				}), errRefused)
				return nil
			}))
			b.want("1: before")
			b.pending(o, "inside")
		},
		"raised inside a nested transaction that succeeds": func(b *bench) {
			o := order("1", "before")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create(o).Error)
				return tx.Transaction(func(*gorm.DB) error {
					raising(o, "inside")
					return nil
				})
			}))
			b.want("1: before", "1: inside")
		},
		"published before, inside and after": func(b *bench) {
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(uow.Publish(tx, Happened{"before"}))
				require.ErrorIs(b.t, tx.Transaction(func(tx *gorm.DB) error {
					b.ok(uow.Publish(tx, Happened{"inside"}))
					return errRefused
				}), errRefused)
				return uow.Publish(tx, Happened{"after"})
			}))
			b.want(": before", ": after")
		},
		"a panic inside a nested transaction that is caught outside it": func(b *bench) {
			o := order("1", "inside")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				assert.PanicsWithValue(b.t, "boom", func() {
					_ = tx.Transaction(func(tx *gorm.DB) error {
						b.ok(tx.Create(o).Error)
						panic("boom")
					})
				})
				return tx.Create(order("2", "outside")).Error
			}))
			b.want("2: outside")
			b.pending(o, "inside")
		},
		"a statement that fails inside": func(b *bench) {
			b.stored("1")
			twin := order("1", "a")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				require.Error(b.t, tx.Transaction(func(tx *gorm.DB) error { return tx.Create(twin).Error }))
				return tx.Create(order("2", "b")).Error
			}))
			b.want("2: b")
			b.pending(twin, "a")
		},
		"set and rolled back to by hand": func(b *bench) {
			first, second, third := order("1", "a"), order("2", "b"), order("3", "c")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create(first).Error)
				b.ok(tx.SavePoint("mine").Error)
				b.ok(tx.Create(second).Error)
				b.ok(tx.RollbackTo("mine").Error)
				return tx.Create(third).Error
			}))
			b.want("1: a", "3: c")
			b.pending(second, "b")
		},
		"the same name twice": func(b *bench) {
			orders := []*Order{order("1", "a"), order("2", "b"), order("3", "c")}
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				for _, o := range orders {
					b.ok(tx.Create(o).Error)
					b.ok(tx.SavePoint("mine").Error)
				}
				b.ok(tx.Create(order("4", "d")).Error)
				return tx.RollbackTo("mine").Error
			}))
			b.want("1: a", "2: b", "3: c")
		},
		"the same name twice, the inner one released": func(b *bench) {
			b.standard()
			b.not(outbox.MySQL, "the inner one takes the place of the outer one")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create(order("1", "a")).Error)
				b.ok(tx.Exec("SAVEPOINT mine").Error)
				b.ok(tx.Create(order("2", "b")).Error)
				b.ok(tx.Exec("SAVEPOINT mine").Error)
				b.ok(tx.Create(order("3", "c")).Error)
				b.ok(tx.Exec("RELEASE SAVEPOINT mine").Error)
				return tx.Exec("ROLLBACK TO mine").Error
			}))
			b.want("1: a")
			assert.Equal(b.t, 1, b.orders())
		},
		"released": func(b *bench) {
			b.standard()
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Exec("SAVEPOINT mine").Error)
				b.ok(tx.Create(order("1", "a")).Error)
				return tx.Exec(b.release("mine")).Error
			}))
			b.want("1: a")
		},
		"rolled back to an outer one past an inner one": func(b *bench) {
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.SavePoint("outside").Error)
				b.ok(tx.Create(order("1", "a")).Error)
				b.ok(tx.SavePoint("inside").Error)
				b.ok(tx.Create(order("2", "b")).Error)
				b.ok(tx.RollbackTo("outside").Error)
				return tx.Create(order("3", "c")).Error
			}))
			b.want("3: c")
			assert.Equal(b.t, 1, b.orders())
		},
		"rolled back to twice": func(b *bench) {
			b.standard()
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.SavePoint("mine").Error)
				for _, id := range []string{"1", "2"} {
					b.ok(tx.Create(order(id, "a")).Error)
					b.ok(tx.RollbackTo("mine").Error)
				}
				return tx.Create(order("3", "b")).Error
			}))
			b.want("3: b")
		},
		"rolled back to one that is not there": func(b *bench) {
			b.not(outbox.Postgres, "the transaction is lost then")
			o := order("1", "a")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create(o).Error)
				require.Error(b.t, tx.Exec(b.back("nowhere")).Error)
				return nil
			}))
			b.want("1: a")
		},
		"rollbacks that are undone by none": func(b *bench) {
			b.ok(b.db.Session(&gorm.Session{DisableNestedTransaction: true}).Transaction(func(tx *gorm.DB) error {
				require.ErrorIs(b.t, tx.Transaction(func(tx *gorm.DB) error {
					b.ok(tx.Create(order("1", "a")).Error)
					return errRefused
				}), errRefused)
				return nil
			}))
			b.want("1: a") // without a savepoint the row is there, and so is its event
			assert.Equal(b.t, 1, b.orders())
		},
		"functions after the commit": func(b *bench) {
			var ran []string
			note := func(tx *gorm.DB, what string) {
				b.ok(b.plugin.AfterCommit(tx, func() { ran = append(ran, what) }))
			}
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				note(tx, "before")
				require.ErrorIs(b.t, tx.Transaction(func(tx *gorm.DB) error {
					note(tx, "undone")
					return errRefused
				}), errRefused)
				b.ok(tx.Transaction(func(tx *gorm.DB) error {
					note(tx, "inside")
					return tx.Create(order("1", "a")).Error
				}))
				assert.Empty(b.t, ran)
				return nil
			}))
			assert.Equal(b.t, []string{"before", "inside"}, ran)
			b.want("1: a")
		},
	})
}
