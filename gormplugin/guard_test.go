package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/uow"
)

// Fragile has a hook that panics.
type Fragile struct {
	ID   string `gorm:"primaryKey"`
	Note string
	uow.Aggregate
}

func (f *Fragile) AfterSave(*gorm.DB) error {
	if f.Note == "panic" {
		panic("hook")
	}
	return nil
}

func (f *Fragile) BeforeDelete(*gorm.DB) error { panic("hook") }

// Basket is no aggregate; its children are.
type Basket struct {
	ID    string    `gorm:"primaryKey"`
	Items []Fragile `gorm:"many2many:basket_items"`
}

// A panic in a hook gives the connection back, with GORM's default transaction and with the
// plugin's own, and also where the hook is that of a child.
func TestPanickingHooks(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		for _, session := range []gorm.Session{{}, {SkipDefaultTransaction: true}, {PrepareStmt: true}} {
			db := b.db.Session(&session)
			fragile := raising(&Fragile{ID: "1", Note: "panic"}, "a")
			for name, statement := range map[string]func(){
				"save":   func() { db.Save(fragile) },
				"delete": func() { db.Delete(fragile) },
				"child":  func() { b.db.Create(&Basket{ID: "1", Items: []Fragile{*fragile}}) },
			} {
				require.PanicsWithValue(b.t, "hook", statement, name)
				require.Zero(b.t, b.pool().Stats().InUse)
			}
			b.pending(fragile, "a")
		}
		assert.Zero(b.t, b.count(&Fragile{}))
		b.want()
	})
}

func TestSelectAllUpdateOfNoRow(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		b.ok(b.db.Select("*").Updates(placed("1")).Error) //nolint:unqueryvet // what is tested
		b.want()
		assert.Contains(b.t, b.log.String(), "left pending")
		assert.EqualValues(b.t, 1, b.plugin.EventsLeftPending())
	})
}
