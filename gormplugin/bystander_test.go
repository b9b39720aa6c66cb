package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/uow"
)

// An aggregate that only lends its values to the row of another one is not written.
func TestUpdatesFromAnotherAggregate(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"selected columns": func(b *bench) {
			to, from := b.stored("1", "to"), b.stored("2", "from")
			from.Status = "x"
			b.ok(b.db.Model(to).Select("Status").Updates(from).Error)
			assert.Equal(b.t, "x", b.status())
			b.want("1: to")
			b.pending(from, "from")
			assert.Contains(b.t, b.log.String(), "aggregate=Order events=1")
		},
		"a value": func(b *bench) {
			to, from := b.stored("1", "to"), b.stored("2", "from")
			from.Status = "x"
			b.ok(b.db.Model(to).Select("Status").Updates(*from).Error)
			b.want("1: to")
			b.pending(from, "from")
		},
		"all columns but the key": func(b *bench) {
			to, from := b.stored("1", "to"), b.stored("2", "from")
			from.Status = "x"
			b.ok(b.db.Model(to).Omit("ID").Updates(from).Error)
			b.want("1: to")
			b.pending(from, "from")
		},
		"update columns": func(b *bench) {
			to, from := b.stored("1", "to"), b.stored("2", "from")
			from.Status = "x"
			b.ok(b.db.Model(to).Select("Status").UpdateColumns(from).Error)
			b.want("1: to")
			b.pending(from, "from")
		},
		"the key, too": func(b *bench) {
			to, from := b.stored("1", "to"), order("2", "from")
			b.ok(b.db.Model(to).Updates(from).Error)
			b.want("2: to") // which the row is now called
			b.pending(from, "from")
		},
		"a version of the same aggregate": func(b *bench) {
			to, from := b.stored("1", "to"), order("1", "from")
			from.Status = "x"
			b.ok(b.db.Model(to).Updates(from).Error)
			b.want("1: to", "1: from")
		},
		"a copy that has raised something": func(b *bench) {
			to := b.stored("1", "to")
			from := *to
			from.Status = "x"
			b.ok(b.db.Model(to).Updates(raising(&from, "from")).Error)
			b.want("1: to", "1: from")
			b.pending(to)
		},
		"a copy that has become another aggregate": func(b *bench) {
			to := b.stored("1", "to")
			from := *to
			from.ID, from.Status = "2", "x"
			b.ok(b.db.Model(to).Select("Status").Updates(from).Error)
			b.want("1: to")
			b.pending(to)
		},
		"no row": func(b *bench) {
			to, from := order("1", "to"), b.stored("2", "from")
			b.ok(b.db.Model(to).Select("Status").Updates(from).Error)
			b.want()
			b.pending(to, "to")
			b.pending(from, "from")
			assert.EqualValues(b.t, 2, b.plugin.EventsLeftPending())
		},
		"saved afterwards": func(b *bench) {
			to, from := b.stored("1", "to"), b.stored("2", "from")
			from.Status = "x"
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Model(to).Select("Status").Updates(from).Error)
				return tx.Save(from).Error
			}))
			b.want("1: to", "2: from")
		},
		"for a slice": func(b *bench) {
			orders, from := b.storedAll("1", "2"), b.stored("3", "from")
			from.Status = "x"
			b.ok(b.db.Model(orders).Select("Status").Updates(from).Error)
			b.want("1: of 1", "2: of 2")
			b.pending(from, "from")
		},
		"for a slice that has it": func(b *bench) {
			orders := b.storedAll("1", "2")
			from := order("2", "from")
			from.Status = "x"
			b.ok(b.db.Model(orders).Select("Status").Updates(from).Error)
			b.want("1: of 1", "2: of 2", "2: from")
		},
		"another type": func(b *bench) {
			type Form struct {
				ID, Status string
				uow.Aggregate
			}
			to := b.stored("1", "to")
			from := raising(&Form{ID: "1", Status: "x"}, "from")
			b.ok(b.db.Model(to).Select("Status").Updates(from).Error)
			b.want("1: to")
			b.pending(from, "from")
		},
		"by condition, from an aggregate with a key": func(b *bench) {
			b.stored("1")
			from := order("1", "from")
			from.Status = "x"
			b.ok(b.db.Model(&Order{}).Where("id = ?", "1").Select("Status").Updates(from).Error)
			b.want("1: from")
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
		"by gorm.G, of itself": func(b *bench) {
			from := b.stored("1", "from")
			from.Status = "x"
			_, err := gorm.G[Order](b.db).Where("id = ?", "1").Updates(b.t.Context(), *from)
			b.ok(err)
			b.want("1: from")
		},
		"save onto another one": func(b *bench) {
			to, from := b.stored("1", "to"), order("2", "from")
			b.ok(b.db.Model(to).Save(from).Error)
			b.want("2: to")
			b.pending(from, "from")
		},
		"a delete by condition, beside a model": func(b *bench) {
			other, _ := b.stored("1", "other"), b.stored("2")
			b.ok(b.db.Model(other).Where("id = ?", "2").Delete(Order{}).Error)
			assert.Equal(b.t, 1, b.orders())
			b.want()
			b.pending(other, "other")
		},
	})
	runCases(t, map[string]func(b *bench){
		"strict: events of the one that is not written": func(b *bench) {
			to, from := b.stored("1", "to"), b.stored("2", "from")
			var pending *gormplugin.PendingError
			require.ErrorAs(b.t, b.db.Model(to).Select("Customer").Updates(from).Error, &pending)
			b.want()
		},
	}, gormplugin.WithStrict())
}
