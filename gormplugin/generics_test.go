package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
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
		"generic create with assignments": func(b *bench) {
			b.ok(gorm.G[Order](b.db).Set(clause.Assignment{Column: clause.Column{Name: "id"}, Value: "1"}).Create(b.t.Context()))
			b.want()
			assert.Equal(b.t, 1, b.orders())
		},
	})
}
