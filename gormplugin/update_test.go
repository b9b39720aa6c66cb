package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stored writes an order without events and then lets it raise some.
func (b *bench) stored(id string, what ...string) *Order {
	b.t.Helper()
	o := order(id)
	b.ok(b.db.Create(o).Error)
	return raising(o, what...)
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"save of a new aggregate with an assigned key": func(b *bench) {
			o := order("1", "a")
			b.ok(b.db.Save(o).Error)
			b.want("1: a")
			b.pending(o)
			assert.NotContains(b.t, b.log.String(), "left pending")
		},
		"updates with another aggregate that has raised and has no key": func(b *bench) {
			o := b.stored("1", "a")
			change := raising(&Order{Status: "x"}, "b")
			require.ErrorContains(b.t, b.db.Model(o).Updates(change).Error, "has no id")
			b.want()
			b.pending(o, "a")
			b.pending(change, "b")
		},
		"a lost optimistic lock and a retry that wins": func(b *bench) {
			account := raising(&Account{Bank: "b", Number: 1, Version: 1}, "opened")
			b.ok(b.db.Create(account).Error)
			raising(account, "a")
			id := idOf(account)
			result := b.db.Model(account).Where("version = ?", 7).Updates(map[string]any{"version": 8})
			b.ok(result.Error)
			assert.Zero(b.t, result.RowsAffected)
			b.want("b,1: opened")
			b.pending(account, "a")
			b.ok(b.db.Model(account).Where("version = ?", 1).Updates(map[string]any{"version": 2}).Error)
			b.want("b,1: opened", "b,1: a")
			assert.Equal(b.t, id, b.rows()[1].MessageID)
		},
	})
}
