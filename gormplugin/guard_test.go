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
// plugin's own.
func TestPanickingHooks(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		require.NoError(b.t, b.db.Create(&Fragile{ID: "there"}).Error)
		sqlDB, err := b.db.DB()
		require.NoError(b.t, err)
		for _, db := range []*gorm.DB{b.db, b.db.Session(&gorm.Session{SkipDefaultTransaction: true}), b.db.Session(&gorm.Session{PrepareStmt: true})} {
			fragile := &Fragile{ID: "1", Note: "panic"}
			fragile.Raise(OrderShipped{"1"})
			for _, statement := range []func(){
				func() { db.Create(fragile) },
				func() { db.Save(fragile) },
				func() { db.Model(&Fragile{ID: "there", Note: "panic"}).Updates(map[string]any{"note": "panic"}) },
				func() { db.Delete(&Fragile{ID: "there"}) },
				func() { _ = db.Transaction(func(tx *gorm.DB) error { return tx.Create(fragile).Error }) },
			} {
				require.PanicsWithValue(b.t, "hook", statement)
				require.Zero(b.t, sqlDB.Stats().InUse)
			}
			require.PanicsWithValue(b.t, "hook", func() { b.db.Create(&Basket{ID: "1", Items: []Fragile{*fragile}}) })
			require.Zero(b.t, sqlDB.Stats().InUse, "a panic in the hook of a child")
			assert.Len(b.t, uow.Pending(fragile), 1)
		}
		var n int64
		require.NoError(b.t, b.db.Model(&Fragile{}).Where("note <> ?", "panic").Count(&n).Error)
		assert.EqualValues(b.t, 1, n)
		b.want()
	})
}

func TestSelectAllUpdateOfNoRow(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		require.NoError(b.t, b.db.Select("*").Updates(placed("1")).Error) //nolint:unqueryvet // what is tested
		b.want()
		assert.Contains(b.t, b.log.String(), "left pending")
		assert.EqualValues(b.t, 1, b.plugin.EventsLeftPending())
	})
}

// A panic in a callback of another plugin, of which the plugin knows nothing, does not keep the
// connection of the transaction that the plugin has begun.
func TestPanickingCallbacksOfOthers(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		panics := func(*gorm.DB) { panic("audit") }
		b.ok(b.db.Callback().Create().After("gorm:create").Before("fanout:capture").Register("audit:create", panics))
		b.ok(b.db.Callback().Update().After("fanout:capture").Before("fanout:end").Register("audit:update", panics))
		b.ok(b.db.Callback().Delete().Before("gorm:delete").Register("audit:delete", panics))
		db := b.db.Session(&gorm.Session{SkipDefaultTransaction: true})
		sqlDB, err := db.DB()
		b.ok(err)
		o := order("1", "placed")
		for _, statement := range []func(){
			func() { db.Create(o) },
			func() { db.Model(o).Update("status", "paid") },
			func() { db.Delete(o) },
		} {
			require.PanicsWithValue(b.t, "audit", statement)
			require.Zero(b.t, sqlDB.Stats().InUse, "a connection stays in use")
		}
		b.want()
		b.pending(o, "placed")
		require.Zero(b.t, b.orders())
	})
}
