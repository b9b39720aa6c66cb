package gormplugin_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/uow"
)

func TestUnits(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"a unit of work": func(b *bench) {
			var after []string
			b.ok(uow.Do(b.t.Context(), b.db, func(u *uow.Unit) error {
				b.ok(u.AfterCommit(func() { after = append(after, "committed") }))
				b.ok(u.Publish(Happened{"published"}))
				b.ok(u.DB.Create(order("1", "saved")).Error)
				b.ok(u.Track(order("2", "tracked")))
				assert.Empty(b.t, after)
				return nil
			}))
			b.want(": published", "1: saved", "2: tracked")
			assert.Equal(b.t, []string{"committed"}, after)
		},
		"a unit of work that fails": func(b *bench) {
			o, tracked := order("1", "saved"), order("2", "tracked")
			require.ErrorIs(b.t, uow.Do(b.t.Context(), b.db, func(u *uow.Unit) error {
				b.ok(u.AfterCommit(func() { b.t.Error("it did not commit") }))
				b.ok(u.Publish(Happened{"published"}))
				b.ok(u.DB.Create(o).Error)
				b.ok(u.Track(tracked))
				return errRefused
			}), errRefused)
			b.want()
			b.pending(o, "saved")
			b.pending(tracked, "tracked")
		},
		"a unit of work that panics": func(b *bench) {
			o := order("1", "saved")
			assert.PanicsWithValue(b.t, "boom", func() {
				_ = uow.Do(b.t.Context(), b.db, func(u *uow.Unit) error {
					b.ok(u.DB.Create(o).Error)
					panic("boom")
				})
			})
			b.want()
			b.pending(o, "saved")
		},
		"a unit inside a unit that fails": func(b *bench) {
			inner := order("2", "inner")
			b.ok(uow.Do(b.t.Context(), b.db, func(u *uow.Unit) error {
				b.ok(u.DB.Create(order("1", "outer")).Error)
				require.ErrorIs(b.t, uow.Do(b.t.Context(), u.DB, func(u *uow.Unit) error {
					b.ok(u.Publish(Happened{"inner"}))
					b.ok(u.AfterCommit(func() { b.t.Error("it was undone") }))
					b.ok(u.DB.Create(inner).Error)
					return errRefused
				}), errRefused)
				return nil
			}))
			b.want("1: outer")
			b.pending(inner, "inner")
		},
		"a unit inside a unit that succeeds": func(b *bench) {
			var after []string
			b.ok(uow.Do(b.t.Context(), b.db, func(u *uow.Unit) error {
				b.ok(uow.Do(b.t.Context(), u.DB, func(u *uow.Unit) error {
					b.ok(u.AfterCommit(func() { after = append(after, "inner") }))
					return u.DB.Create(order("1", "inner")).Error
				}))
				assert.Empty(b.t, after)
				return u.DB.Create(order("2", "outer")).Error
			}))
			b.want("1: inner", "2: outer")
			assert.Equal(b.t, []string{"inner"}, after)
		},
		"a unit inside a unit with a context of its own": func(b *bench) {
			b.ok(uow.Do(envelope.WithCorrelationID(b.t.Context(), "outer"), b.db, func(u *uow.Unit) error {
				b.ok(u.Publish(Happened{"a"}))
				return uow.Do(envelope.WithCorrelationID(b.t.Context(), "inner"), u.DB, func(u *uow.Unit) error {
					return u.Publish(Happened{"b"})
				})
			}))
			b.want(": a", ": b")
			assert.Equal(b.t, "outer", *b.rows()[0].CorrelationID)
			assert.Equal(b.t, "inner", *b.rows()[1].CorrelationID)
		},
		"a unit of work with prepared statements": func(b *bench) {
			db := b.db.Session(&gorm.Session{PrepareStmt: true})
			b.ok(uow.Do(b.t.Context(), db, func(u *uow.Unit) error {
				b.ok(u.Publish(Happened{"a"}))
				return u.DB.Create(order("1", "b")).Error
			}))
			b.want(": a", "1: b")
		},
		"a unit of work whose context is cancelled": func(b *bench) {
			ctx, cancel := context.WithCancel(b.t.Context())
			o := order("1", "a")
			require.Error(b.t, uow.Do(ctx, b.db, func(u *uow.Unit) error {
				b.ok(u.DB.Create(o).Error)
				cancel()
				return nil
			}))
			b.settled()
			b.want()
			b.pending(o, "a")
		},
		"an aggregate that was written with raw statements": func(b *bench) {
			o := b.stored("1", "a")
			b.ok(uow.Do(b.t.Context(), b.db, func(u *uow.Unit) error {
				b.ok(u.DB.Exec("UPDATE "+b.table(o)+" SET status = ? WHERE id = ?", "x", "1").Error)
				return u.Track(o)
			}))
			b.want("1: a")
			b.pending(o)
		},
		"tracked inside a savepoint that is rolled back": func(b *bench) {
			o := b.stored("1", "a")
			b.ok(uow.Do(b.t.Context(), b.db, func(u *uow.Unit) error {
				require.ErrorIs(b.t, uow.Do(b.t.Context(), u.DB, func(u *uow.Unit) error {
					b.ok(u.Track(o))
					return errRefused
				}), errRefused)
				return nil
			}))
			b.want()
			b.pending(o, "a")
		},
		"what is tracked must be an aggregate": func(b *bench) {
			require.ErrorContains(b.t, uow.Do(b.t.Context(), b.db, func(u *uow.Unit) error { return u.Track(&Plain{}) }), "embeds uow.Aggregate")
			b.want()
		},
		"publish outside a transaction": func(b *bench) {
			require.ErrorIs(b.t, uow.Publish(b.db, StockReserved{"x"}), uow.ErrNoTransaction)
			b.want()
		},
		"publish without the plugin": func(b *bench) {
			require.ErrorIs(b.t, uow.Publish(b.open(&gorm.Config{}), StockReserved{"x"}), uow.ErrNoPlugin)
			b.want()
		},
		"publish what is not registered": func(b *bench) {
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				require.ErrorContains(b.t, uow.Publish(tx, Unregistered{}), "envelope.Register[")
				return tx.Create(order("1", "a")).Error
			}))
			b.want("1: a")
		},
		"publish what cannot be encoded": func(b *bench) {
			require.ErrorContains(b.t, b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create(order("1", "a")).Error)
				return uow.Publish(tx, Unencodable{make(chan int)})
			}), "Unencodable")
			b.want()
			assert.Zero(b.t, b.orders())
		},
		"publish nothing but an event": func(b *bench) {
			b.ok(b.db.Transaction(func(tx *gorm.DB) error { return uow.Publish(tx, StockReserved{"x"}) }))
			b.want("StockReserved", "StockReserved>partner")
		},
		"publish in a transaction begun by hand": func(b *bench) {
			tx := b.db.Begin()
			b.ok(uow.Publish(tx, Happened{"a"}))
			b.ok(tx.Commit().Error)
			b.want(": a")
		},
		"a function after the commit outside a transaction": func(b *bench) {
			require.ErrorIs(b.t, b.plugin.AfterCommit(b.db, func() {}), uow.ErrNoTransaction)
		},
		"a function after the commit uses the database": func(b *bench) {
			b.ok(uow.Do(b.t.Context(), b.db, func(u *uow.Unit) error {
				b.ok(u.AfterCommit(func() { assert.NoError(b.t, b.db.Create(order("2", "second")).Error) }))
				return u.DB.Create(order("1", "first")).Error
			}))
			b.want("1: first", "2: second")
		},
	})
}
