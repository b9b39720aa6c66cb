package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
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
	})
}
