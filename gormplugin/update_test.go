package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/gorm-fanout/fanout/gormplugin"
)

// stored writes an order without events and then lets it raise some.
func (b *bench) stored(id string, what ...string) *Order {
	b.t.Helper()
	o := order(id)
	b.ok(b.db.Create(o).Error)
	return raising(o, what...)
}

// status is that of order 1.
func (b *bench) status() string {
	b.t.Helper()
	var found Order
	b.ok(b.db.Session(&gorm.Session{NewDB: true}).First(&found, "id = ?", "1").Error)
	return found.Status
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
		"save of a new aggregate inside a transaction": func(b *bench) {
			b.ok(b.db.Transaction(func(tx *gorm.DB) error { return tx.Save(order("1", "a")).Error }))
			b.want("1: a")
			assert.NotContains(b.t, b.log.String(), "left pending")
		},
		"save of a new aggregate with a generated key": func(b *bench) {
			b.ok(b.db.Save(raising(&Ticket{Name: "x"}, "a")).Error)
			b.want("1: a")
		},
		"save of an existing aggregate": func(b *bench) {
			b.ok(b.db.Save(b.stored("1", "a")).Error)
			b.want("1: a")
		},
		"save of a slice, new and old": func(b *bench) {
			b.ok(b.db.Save([]*Order{b.stored("1", "a"), order("2", "b")}).Error)
			b.want("1: a", "2: b")
			assert.Equal(b.t, 2, b.orders())
		},
		"save of selected columns": func(b *bench) {
			o := b.stored("1", "a")
			o.Status, o.Customer = "x", "y"
			b.ok(b.db.Select("Status").Save(o).Error)
			b.want("1: a")
			assert.Equal(b.t, "x", b.status())
		},
		"save of selected columns of a row that is gone": func(b *bench) {
			o := order("1", "a")
			b.ok(b.db.Select("Status").Save(o).Error)
			b.want()
			b.pending(o, "a")
			assert.Contains(b.t, b.log.String(), "events left pending")
		},
		"save with a condition that does not hold is an upsert": func(b *bench) {
			o := b.stored("1", "a")
			o.Status = "x"
			b.ok(b.db.Where("status = ?", "other").Save(o).Error)
			b.want("1: a")
			assert.Equal(b.t, "x", b.status())
		},
		"updates with a map": func(b *bench) {
			o := b.stored("1", "a")
			b.ok(b.db.Model(o).Updates(map[string]any{"status": "x"}).Error)
			b.want("1: a")
			b.pending(o)
		},
		"updates with a struct": func(b *bench) {
			b.ok(b.db.Model(b.stored("1", "a")).Updates(Order{Status: "x"}).Error)
			b.want("1: a")
			assert.Equal(b.t, "x", b.status())
		},
		"updates with the model's own pointer": func(b *bench) {
			o := b.stored("1", "a")
			o.Status = "x"
			b.ok(b.db.Updates(o).Error)
			b.want("1: a")
		},
		"updates with another aggregate that has raised": func(b *bench) {
			o := b.stored("1", "a")
			b.ok(b.db.Model(o).Updates(raising(&Order{ID: "1", Status: "x"}, "b")).Error)
			b.want("1: a", "1: b")
			b.pending(o)
		},
		"updates with another aggregate that has raised and has no key": func(b *bench) {
			o := b.stored("1", "a")
			change := raising(&Order{Status: "x"}, "b")
			require.ErrorContains(b.t, b.db.Model(o).Updates(change).Error, "has no id")
			b.want()
			b.pending(o, "a")
			b.pending(change, "b")
		},
		"updates of zero values in a struct build no statement": func(b *bench) {
			o := b.stored("1", "a")
			b.ok(b.db.Model(o).Updates(Order{}).Error)
			b.want("1: a")
			b.pending(o)
		},
		"updates of selected columns": func(b *bench) {
			b.ok(b.db.Model(b.stored("1", "a")).Select("Status").Updates(Order{Customer: "y", Status: "x"}).Error)
			b.want("1: a")
			assert.Equal(b.t, "x", b.status())
		},
		"updates of all columns": func(b *bench) {
			b.ok(b.db.Model(b.stored("1", "a")).Select("*").Omit("ID").Updates(Order{Status: "x"}).Error) //nolint:unqueryvet // this is what the case is about
			b.want("1: a")
		},
		"updates of all columns of a row that is gone warn": func(b *bench) {
			o := order("1", "a")
			b.ok(b.db.Model(o).Select("*").Updates(&Order{ID: "1", Status: "x"}).Error) //nolint:unqueryvet // this is what the case is about
			b.want()
			b.pending(o, "a")
			assert.Contains(b.t, b.log.String(), "events left pending")
		},
		"updates of all columns of itself, when its row is gone, warn": func(b *bench) {
			o := order("1", "a")
			b.ok(b.db.Select("*").Updates(o).Error) //nolint:unqueryvet // this is what the case is about
			b.want()
			b.pending(o, "a")
			assert.Contains(b.t, b.log.String(), "events left pending")
		},
		"updates without omitted columns": func(b *bench) {
			b.ok(b.db.Model(b.stored("1", "a")).Omit("Customer").Updates(map[string]any{"customer": "y", "status": "x"}).Error)
			b.want("1: a")
		},
		"update of one column": func(b *bench) {
			b.ok(b.db.Model(b.stored("1", "a")).Update("status", "x").Error)
			b.want("1: a")
		},
		"update with an expression": func(b *bench) {
			account := &Account{Bank: "b", Number: 1, Version: 1}
			b.ok(b.db.Create(account).Error)
			b.ok(b.db.Model(raising(account, "a")).Update("version", gorm.Expr("version + ?", 1)).Error)
			b.want("b,1: a")
			var found Account
			b.ok(b.db.First(&found).Error)
			assert.Equal(b.t, 2, found.Version)
		},
		"update column": func(b *bench) {
			b.ok(b.db.Model(b.stored("1", "a")).UpdateColumn("status", "x").Error)
			b.want("1: a")
		},
		"update columns": func(b *bench) {
			b.ok(b.db.Model(b.stored("1", "a")).UpdateColumns(map[string]any{"status": "x"}).Error)
			b.want("1: a")
		},
		"update of a template has no aggregate given": func(b *bench) {
			b.stored("1")
			b.ok(b.db.Model(&Order{}).Where("id = ?", "1").Updates(map[string]any{"status": "x"}).Error)
			b.want()
			assert.Equal(b.t, "x", b.status())
		},
		"update by condition on a named table": func(b *bench) {
			b.stored("1")
			b.ok(b.db.Table(b.table(&Order{})).Where("id = ?", "1").Updates(map[string]any{"status": "x"}).Error)
			b.want()
			assert.Equal(b.t, "x", b.status())
		},
		"update of a slice of aggregates": func(b *bench) {
			orders := []*Order{b.stored("1", "a"), b.stored("2", "b")}
			b.ok(b.db.Model(orders).Updates(map[string]any{"status": "x"}).Error)
			b.want("1: a", "2: b")
		},
		"update of a slice of which one is gone": func(b *bench) {
			orders := []*Order{b.stored("1", "a"), order("2", "b")}
			var partial *gormplugin.PartialBatchError
			require.ErrorAs(b.t, b.db.Model(orders).Updates(map[string]any{"status": "x"}).Error, &partial)
			b.want()
			assert.Empty(b.t, b.status())
			b.pending(orders[0], "a")
		},
		"an update that changes no row leaves the events pending": func(b *bench) {
			o := b.stored("1", "a")
			b.ok(b.db.Model(o).Where("status = ?", "other").Updates(map[string]any{"status": "x"}).Error)
			b.want()
			b.pending(o, "a")
			assert.Contains(b.t, b.log.String(), "events left pending")
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
		"a lost lock and another aggregate in one transaction": func(b *bench) {
			lost := b.stored("1", "a")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Model(lost).Where("status = ?", "other").Update("status", "x").Error)
				return tx.Create(order("2", "b")).Error
			}))
			b.want("2: b")
			b.pending(lost, "a")
		},
		"a change that was lost and then written after all": func(b *bench) {
			o := b.stored("1", "a")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Model(o).Where("status = ?", "other").Update("status", "x").Error)
				return tx.Model(o).Update("status", "y").Error
			}))
			b.want("1: a")
			assert.NotContains(b.t, b.log.String(), "left pending")
		},
		"update and return": func(b *bench) {
			b.updatesReturn()
			o := b.stored("1", "a")
			b.ok(b.db.Model(o).Clauses(clause.Returning{}).Updates(map[string]any{"status": "x"}).Error)
			b.want("1: a")
			assert.Equal(b.t, "x", o.Status)
			b.pending(o)
		},
		"update of a slice and return": func(b *bench) {
			b.updatesReturn()
			b.stored("1")
			b.stored("2")
			var orders []Order
			b.ok(b.db.Model(&orders).Clauses(clause.Returning{}).Where("1 = 1").Updates(map[string]any{"status": "x"}).Error)
			b.want()
			require.Len(b.t, orders, 2)
		},
		"update of everything": func(b *bench) {
			b.stored("1")
			b.ok(b.db.Session(&gorm.Session{AllowGlobalUpdate: true}).Model(&Order{}).Update("status", "x").Error)
			b.want()
			assert.Equal(b.t, "x", b.status())
		},
		"update of everything is refused": func(b *bench) {
			template := raising(&Order{}, "a")
			require.ErrorIs(b.t, b.db.Model(template).Update("status", "x").Error, gorm.ErrMissingWhereClause)
			b.want()
			b.pending(template, "a")
		},
		"two updates of one aggregate in one transaction": func(b *bench) {
			o := b.stored("1", "a")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Model(o).Update("status", "x").Error)
				raising(o, "b")
				return tx.Model(o).Update("status", "y").Error
			}))
			b.want("1: a", "1: b")
		},
	})
}
