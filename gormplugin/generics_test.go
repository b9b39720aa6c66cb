package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
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
		"generic updates with a template that has raised": func(b *bench) {
			b.stored("1")
			change := raising(&Order{ID: "1", Status: "x"}, "a")
			n, err := gorm.G[Order](b.db).Where("id = ?", "1").Updates(b.t.Context(), *change)
			b.ok(err)
			assert.Equal(b.t, 1, n)
			b.want("1: a")
			b.pending(change)
		},
		"generic statements in a transaction": func(b *bench) {
			refused := order("2", "refused")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(gorm.G[Order](tx).Create(b.t.Context(), order("1", "a")))
				b.goesBack(tx, func(tx *gorm.DB) { b.ok(gorm.G[Order](tx).Create(b.t.Context(), refused)) })
				return uow.Publish(tx, Happened{"b"})
			}))
			b.want("1: a", ": b")
			b.pending(refused, "refused")
		},
		"generic create with assignments": func(b *bench) {
			b.ok(gorm.G[Order](b.db).Set(clause.Assignment{Column: clause.Column{Name: "id"}, Value: "1"}).Create(b.t.Context()))
			b.want()
			assert.Equal(b.t, 1, b.orders())
		},
	})
}
