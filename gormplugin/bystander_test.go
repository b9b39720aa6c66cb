package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/gormplugin"
)

// An aggregate that only lends its values to the row of another one is not written.
func TestUpdatesFromAnotherAggregate(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"the key, too": func(b *bench) {
			to, from := b.stored("1", "to"), order("2", "from")
			b.ok(b.db.Model(to).Updates(from).Error)
			b.want("2: to") // which the row is now called
			b.pending(from, "from")
		},
		"a copy that has raised something": func(b *bench) {
			to := b.stored("1", "to")
			from := *to
			from.Status = "x"
			b.ok(b.db.Model(to).Updates(raising(&from, "from")).Error)
			b.want("1: to", "1: from")
			b.pending(to)
		},
		"by gorm.G, with the key of another row": func(b *bench) {
			b.stored("1")
			from := b.stored("2", "from")
			n, err := gorm.G[Order](b.db).Where("id = ?", "1").Updates(b.t.Context(), *from)
			b.ok(err)
			assert.Zero(b.t, n)
			b.want()
			b.pending(from, "from")
		},
	})
	runCases(t, map[string]func(b *bench){
		"strict: events of the one that is not written": func(b *bench) {
			to, from := b.stored("1", "to"), b.stored("2", "from")
			require.ErrorAs(b.t, b.db.Model(to).Select("Customer").Updates(from).Error, new(*gormplugin.PendingError))
			b.want()
		},
	}, gormplugin.WithStrict())
}
