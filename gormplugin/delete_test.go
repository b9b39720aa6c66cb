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
		"delete of a model": func(b *bench) {
			o := b.stored("1", "a")
			b.ok(b.db.Model(o).Delete(&Order{}).Error)
			b.want("1: a")
			assert.Zero(b.t, b.orders())
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
		"soft delete of a slice of which one was deleted before": func(b *bench) {
			documents := []*Document{b.filed("1", "a"), b.filed("2")}
			b.ok(b.db.Delete(documents[1]).Error)
			require.ErrorAs(b.t, b.db.Delete(documents).Error, new(*gormplugin.PartialBatchError))
			b.want()
			b.pending(documents[0], "a")
		},
	})
}
