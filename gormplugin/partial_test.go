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

// What the error of a batch that was written in part says is to be done, done: roll back and write
// the aggregates one by one, or have the statement return their keys.
func TestRemediesOfAPartialBatch(t *testing.T) {
	t.Parallel()
	keys := clause.Returning{Columns: []clause.Column{{Name: "id"}}}
	set := map[string]any{"status": "x"}
	batches := map[string]struct {
		all func(tx *gorm.DB, orders []*Order) error
		one func(tx *gorm.DB, o *Order) error
	}{
		"create": {
			all: func(tx *gorm.DB, orders []*Order) error { return tx.Clauses(ignoring).Create(orders).Error },
			one: func(tx *gorm.DB, o *Order) error { return tx.Clauses(ignoring).Create(o).Error },
		},
		"update": {
			all: func(tx *gorm.DB, orders []*Order) error { return tx.Model(orders).Updates(set).Error },
			one: func(tx *gorm.DB, o *Order) error { return tx.Model(o).Updates(set).Error },
		},
	}
	for name, batch := range batches {
		// prepare makes an order that the statement changes and one that it passes over.
		prepare := func(b *bench) (orders []*Order, want string) {
			b.ok(b.db.Create(order("1")).Error)
			orders, want = []*Order{order("1"), order("2")}, "1: a"
			if name == "create" {
				want = "2: b"
			}
			return orders, want
		}
		raise := func(orders []*Order) {
			raising(orders[0], "a")
			raising(orders[1], "b")
		}
		before := func(_ *bench, tx *gorm.DB, orders []*Order, write func(tx *gorm.DB, orders []*Order) error) error {
			raise(orders)
			return write(tx, orders)
		}
		after := func(b *bench, tx *gorm.DB, orders []*Order, write func(tx *gorm.DB, orders []*Order) error) error {
			b.ok(write(tx, orders))
			raise(orders)
			return nil
		}
		oneByOne := func(tx *gorm.DB, orders []*Order) error {
			for _, o := range orders {
				if err := batch.one(tx, o); err != nil {
					return err
				}
			}
			return nil
		}
		for when, write := range map[string]func(*bench, *gorm.DB, []*Order, func(*gorm.DB, []*Order) error) error{"before": before, "after": after} {
			t.Run(name+", raised "+when, func(t *testing.T) {
				t.Parallel()
				onEach(t, func(b *bench) {
					orders, want := prepare(b)
					var partial *gormplugin.PartialBatchError
					err := b.db.Transaction(func(tx *gorm.DB) error { return write(b, tx, orders, batch.all) })
					if name == "create" && b.dialect != outbox.MySQL && b.dialect != outbox.SQLServer { // where the plugin has it return the keys
						b.ok(err)
						b.want(want)
						return
					}
					require.ErrorAs(b.t, err, &partial)
					assert.Equal(b.t, gormplugin.PartialBatchError{Aggregate: "Order", Given: 2, Affected: 1}, *partial)
					require.ErrorContains(b.t, err, "roll back and write them one by one, or have the statement return their keys by clause.Returning")
					b.want()
					b.ok(b.db.Transaction(func(tx *gorm.DB) error { return oneByOne(tx, orders) }))
					b.want(want)
				})
				onEach(t, func(b *bench) {
					b.not(outbox.SQLServer, "the error does not say so of it")
					b.not(outbox.MySQL, "nor of it")
					orders, want := prepare(b)
					b.ok(b.db.Transaction(func(tx *gorm.DB) error {
						return write(b, tx.Clauses(keys).Session(&gorm.Session{}), orders, batch.all)
					}))
					b.want(want)
				})
			})
		}
	}
}

// Two objects of one row are written with it: a count of one is all there is to change.
func TestTwoObjectsOfOneRow(t *testing.T) {
	t.Parallel()
	set := map[string]any{"status": "x"}
	twins := func(b *bench) []*Order { return []*Order{b.stored("1", "a"), order("1", "b"), b.stored("2", "c")} }
	runCases(t, map[string]func(b *bench){
		"update": func(b *bench) {
			b.ok(b.db.Model(twins(b)).Updates(set).Error)
			b.want("1: a", "1: b", "2: c")
		},
		"delete": func(b *bench) {
			b.ok(b.db.Delete(twins(b)).Error)
			b.want("1: a", "1: b", "2: c")
		},
		"copies of one that have become others": func(b *bench) {
			o := b.stored("1", "a")
			other := *o
			other.ID = "2"
			require.ErrorAs(b.t, b.db.Delete([]*Order{o, &other}).Error, new(*gormplugin.PartialBatchError))
			b.want()
		},
	})
}
