package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/gorm-fanout/fanout/uow"
)

// GORM's generic interface takes values and copies them.
func TestGenerics(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"generic create": func(b *bench) {
			o := order("1", "a")
			b.ok(gorm.G[Order](b.db).Create(b.t.Context(), o))
			b.want("1: a")
			b.pending(o)
		},
		"generic create in batches": func(b *bench) {
			orders := []Order{*order("1", "a"), *order("2", "b"), *order("3", "c")}
			b.ok(gorm.G[Order](b.db).CreateInBatches(b.t.Context(), &orders, 2))
			b.want("1: a", "2: b", "3: c")
			b.pending(&orders[0])
		},
		"generic create with a conflict that does nothing": func(b *bench) {
			b.stored("1")
			o := order("1", "a")
			b.ok(gorm.G[Order](b.db, clause.OnConflict{DoNothing: true}).Create(b.t.Context(), o))
			b.want()
			b.pending(o, "a")
		},
		"generic create with a result": func(b *bench) {
			result := gorm.WithResult()
			b.ok(gorm.G[Order](b.db, result).Create(b.t.Context(), order("1", "a")))
			assert.EqualValues(b.t, 1, result.RowsAffected)
			b.want("1: a")
		},
		"generic updates with a template that has raised": func(b *bench) {
			b.stored("1")
			change := raising(&Order{ID: "1", Status: "x"}, "a")
			n, err := gorm.G[Order](b.db).Where("id = ?", "1").Updates(b.t.Context(), *change)
			b.ok(err)
			assert.Equal(b.t, 1, n)
			b.want("1: a")
			b.pending(change)
		},
		"generic updates by condition have no aggregate given": func(b *bench) {
			b.stored("1")
			_, err := gorm.G[Order](b.db).Where("id = ?", "1").Updates(b.t.Context(), Order{Status: "x"})
			b.ok(err)
			b.want()
			assert.Equal(b.t, "x", b.status())
		},
		"generic update of one column": func(b *bench) {
			b.stored("1")
			_, err := gorm.G[Order](b.db).Where("id = ?", "1").Update(b.t.Context(), "status", "x")
			b.ok(err)
			b.want()
			assert.Equal(b.t, "x", b.status())
		},
		"generic delete by condition": func(b *bench) {
			b.stored("1")
			n, err := gorm.G[Order](b.db).Where("id = ?", "1").Delete(b.t.Context())
			b.ok(err)
			assert.Equal(b.t, 1, n)
			b.want()
		},
		"generic read, then an ordinary save": func(b *bench) {
			b.stored("1")
			o, err := gorm.G[Order](b.db).Where("id = ?", "1").First(b.t.Context())
			b.ok(err)
			b.ok(b.db.Save(raising(&o, "a")).Error)
			b.want("1: a")
		},
		"generic find in batches": func(b *bench) {
			b.stored("1")
			b.stored("2")
			b.ok(gorm.G[Order](b.db).Where("1 = 1").FindInBatches(b.t.Context(), 1, func(orders []Order, _ int) error {
				return b.db.Save(raising(&orders[0], "x")).Error
			}))
			b.want("1: x", "2: x")
		},
		"generic statements in a transaction": func(b *bench) {
			refused := order("2", "refused")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(gorm.G[Order](tx).Create(b.t.Context(), order("1", "a")))
				require.ErrorIs(b.t, tx.Transaction(func(tx *gorm.DB) error {
					b.ok(gorm.G[Order](tx).Create(b.t.Context(), refused))
					return errRefused
				}), errRefused)
				return uow.Publish(tx, Happened{"b"})
			}))
			b.want("1: a", ": b")
			b.pending(refused, "refused")
		},
		"generic statements in a transaction that fails": func(b *bench) {
			o := order("1", "a")
			require.ErrorIs(b.t, b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(gorm.G[Order](tx).Create(b.t.Context(), o))
				return errRefused
			}), errRefused)
			b.want()
			b.pending(o, "a")
		},
		"generic create with prepared statements": func(b *bench) {
			b.ok(gorm.G[Order](b.db.Session(&gorm.Session{PrepareStmt: true})).Create(b.t.Context(), order("1", "a")))
			b.want("1: a")
		},
		"generic create with assignments": func(b *bench) {
			b.ok(gorm.G[Order](b.db).Set(clause.Assignment{Column: clause.Column{Name: "id"}, Value: "1"}).Create(b.t.Context()))
			b.want()
			assert.Equal(b.t, 1, b.orders())
		},
	})
}
