package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
)

func (b *bench) filed(id string, what ...string) *Document {
	b.t.Helper()
	d := &Document{ID: id}
	b.ok(b.db.Create(d).Error)
	return raising(d, what...)
}

func TestDelete(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"delete": func(b *bench) {
			o := b.stored("1", "a")
			b.ok(b.db.Delete(o).Error)
			b.want("1: a")
			b.pending(o)
			assert.Zero(b.t, b.orders())
		},
		"delete of a row that is gone": func(b *bench) {
			o := order("1", "a")
			b.ok(b.db.Delete(o).Error)
			b.want()
			b.pending(o, "a")
			assert.Contains(b.t, b.log.String(), "events left pending")
		},
		"delete by a value": func(b *bench) {
			o := b.stored("1", "a")
			b.ok(b.db.Delete(*o).Error)
			b.want("1: a")
			b.pending(o)
		},
		"delete by condition has no aggregate given": func(b *bench) {
			b.stored("1", "a")
			b.ok(b.db.Where("id = ?", "1").Delete(&Order{}).Error)
			b.want()
			assert.Zero(b.t, b.orders())
		},
		"delete by a key beside a template": func(b *bench) {
			o := b.stored("1", "a")
			b.ok(b.db.Delete(&Order{}, "id = ?", "1").Error)
			b.want()
			b.pending(o, "a")
		},
		"delete by a number beside a template": func(b *bench) {
			ticket := &Ticket{Name: "x"}
			b.ok(b.db.Create(ticket).Error)
			b.ok(b.db.Delete(&Ticket{}, ticket.ID).Error)
			b.want()
			assert.Zero(b.t, b.count(&Ticket{}))
		},
		"delete of a model": func(b *bench) {
			o := b.stored("1", "a")
			b.ok(b.db.Model(o).Delete(&Order{}).Error)
			b.want("1: a")
			assert.Zero(b.t, b.orders())
		},
		"delete of a model that is also the destination": func(b *bench) {
			o := b.stored("1", "a")
			b.ok(b.db.Model(o).Delete(o).Error)
			b.want("1: a")
		},
		"delete of a slice": func(b *bench) {
			b.ok(b.db.Delete([]*Order{b.stored("1", "a"), b.stored("2", "b")}).Error)
			b.want("1: a", "2: b")
			assert.Zero(b.t, b.orders())
		},
		"delete of a slice of which one is gone": func(b *bench) {
			orders := []*Order{b.stored("1", "a"), order("2", "b")}
			var partial *gormplugin.PartialBatchError
			require.ErrorAs(b.t, b.db.Delete(orders).Error, &partial)
			b.want()
			assert.Equal(b.t, 1, b.orders(), "rolled back")
			b.pending(orders[0], "a")
		},
		"delete with a condition that does not hold": func(b *bench) {
			o := b.stored("1", "a")
			b.ok(b.db.Where("status = ?", "other").Delete(o).Error)
			b.want()
			b.pending(o, "a")
			assert.Equal(b.t, 1, b.orders())
		},
		"delete and return": func(b *bench) {
			b.not(outbox.SQLServer, "its driver knows no RETURNING")
			o := b.stored("1", "a")
			b.ok(b.db.Clauses(clause.Returning{}).Delete(o).Error)
			b.want("1: a")
			b.pending(o)
		},
		"delete of everything is refused": func(b *bench) {
			template := raising(&Order{}, "a")
			require.ErrorIs(b.t, b.db.Delete(template).Error, gorm.ErrMissingWhereClause)
			b.want()
			b.pending(template, "a")
		},
		"soft delete": func(b *bench) {
			d := b.filed("1", "a")
			b.ok(b.db.Delete(d).Error)
			b.want("1: a")
			assert.Equal(b.t, 1, b.count(&Document{}))
		},
		"soft delete once more": func(b *bench) {
			d := b.filed("1", "a")
			b.ok(b.db.Delete(d).Error)
			raising(d, "b")
			b.ok(b.db.Delete(d).Error)
			b.want("1: a")
			b.pending(d, "b")
			assert.Contains(b.t, b.log.String(), "events left pending")
		},
		"hard delete after the soft one": func(b *bench) {
			d := b.filed("1", "a")
			b.ok(b.db.Delete(d).Error)
			raising(d, "b")
			b.ok(b.db.Unscoped().Delete(d).Error)
			b.want("1: a", "1: b")
			assert.Zero(b.t, b.count(&Document{}))
		},
		"restore what was deleted softly": func(b *bench) {
			d := b.filed("1")
			b.ok(b.db.Delete(d).Error)
			b.ok(b.db.Unscoped().Model(raising(d, "a")).Update("deleted_at", nil).Error)
			b.want("1: a")
		},
		"update of what was deleted softly": func(b *bench) {
			d := b.filed("1")
			b.ok(b.db.Delete(d).Error)
			b.ok(b.db.Model(raising(d, "a")).Update("title", "x").Error)
			b.want()
			b.pending(d, "a")
		},
		"soft delete of a slice": func(b *bench) {
			b.ok(b.db.Delete([]*Document{b.filed("1", "a"), b.filed("2", "b")}).Error)
			b.want("1: a", "2: b")
		},
		"soft delete of a slice of which one was deleted before": func(b *bench) {
			documents := []*Document{b.filed("1", "a"), b.filed("2")}
			b.ok(b.db.Delete(documents[1]).Error)
			var partial *gormplugin.PartialBatchError
			require.ErrorAs(b.t, b.db.Delete(documents).Error, &partial)
			b.want()
			b.pending(documents[0], "a")
		},
		"delete and create again in one transaction": func(b *bench) {
			o := b.stored("1", "a")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Delete(o).Error)
				return tx.Create(raising(o, "b")).Error
			}))
			b.want("1: a", "1: b")
			assert.Equal(b.t, 1, b.orders())
		},
		"delete with its associations": func(b *bench) {
			o := b.stored("1", "a")
			o.Lines = []Line{{SKU: "x"}}
			b.ok(b.db.Save(o).Error)
			b.ok(b.db.Select(clause.Associations).Delete(raising(o, "b")).Error)
			b.want("1: a", "1: b")
			assert.Zero(b.t, b.count(&Line{}))
		},
	})
}
