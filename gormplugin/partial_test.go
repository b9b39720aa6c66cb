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

// A batch that was written in part is refused, also where its events come later. Its error says what helps: write the
// aggregates one by one, or have the statement return their keys.
func TestRemediesOfAPartialBatch(t *testing.T) {
	t.Parallel()
	set := map[string]any{"status": "x"}
	keys := clause.Returning{Columns: []clause.Column{{Name: "id"}}}
	raise := func(orders []*Order) {
		raising(orders[0], "a")
		raising(orders[1], "b")
	}
	for when, late := range map[string]bool{"before": false, "after": true} {
		t.Run("raised "+when, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(b *bench) {
				b.stored("1")
				orders := []*Order{order("1"), order("2")}
				if !late {
					raise(orders)
				}
				err := b.db.Transaction(func(tx *gorm.DB) error {
					if err := tx.Model(orders).Updates(set).Error; !late || err != nil {
						return err
					}
					raise(orders)
					return nil
				})
				var partial *gormplugin.PartialBatchError
				require.ErrorAs(b.t, err, &partial)
				assert.Equal(b.t, gormplugin.PartialBatchError{Aggregate: "Order", Given: 2, Affected: 1}, *partial)
				require.ErrorContains(b.t, err, "roll back and write them one by one, or have the statement return their keys by clause.Returning")
				b.want()
				for _, o := range orders {
					b.ok(b.db.Model(o).Updates(set).Error)
				}
				b.want("1: a")
				if b.dialect == outbox.SQLServer || b.dialect == outbox.MySQL {
					return // their UPDATE returns nothing
				}
				b.ok(b.db.Model([]*Order{raising(orders[0], "c"), orders[1]}).Clauses(keys).Updates(set).Error)
				b.want("1: a", "1: c")
			})
		})
	}
}

// Two objects of one row are written with it: a count of one is all there is to change.
func TestTwoObjectsOfOneRow(t *testing.T) {
	t.Parallel()
	twins := func(b *bench) []*Order { return []*Order{b.stored("1", "a"), order("1", "b"), b.stored("2", "c")} }
	runCases(t, map[string]func(b *bench){
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
