package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/gormplugin"
)

// Copies of aggregates that were loaded share their events.
func TestCopiesOfLoadedAggregates(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"in a range loop": func(b *bench) {
			b.ok(b.db.Create([]*Order{order("1"), order("2")}).Error)
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				var orders []Order
				b.ok(tx.Order("id").Find(&orders).Error)
				for _, o := range orders {
					o.Raise(Happened{"counted"})
				}
				return tx.Save(&orders).Error
			}))
			b.want("1: counted", "2: counted")
		},
	})
}

// An aggregate that was loaded in a transaction, raised something in it and was not written is the
// likeliest mistake: the commit says so.
func TestLoadedAndNotWritten(t *testing.T) {
	t.Parallel()
	// left runs a transaction that leaves events on an order and has a line of its own to write.
	left := map[string]func(b *bench, tx *gorm.DB){
		"only a child is saved": func(b *bench, tx *gorm.DB) {
			var o Order
			b.ok(tx.Preload("Lines").First(&o).Error)
			o.Raise(Happened{"picked"})
			o.Lines[0].SKU = "x"
			b.ok(tx.Save(&o.Lines[0]).Error)
		},
		"its statement fails, and the error is ignored": func(b *bench, tx *gorm.DB) {
			var o Order
			b.ok(tx.First(&o).Error)
			_ = tx.Transaction(func(tx *gorm.DB) error {
				return tx.Model(&o).UpdateColumn("nothing", 1).Error
			})
			o.Raise(Happened{"changed"})
		},
	}
	prepare := func(b *bench) { b.ok(b.db.Create(&Order{ID: "1", Lines: []Line{{ID: 1}}}).Error) }
	for name, work := range left {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(b *bench) {
				prepare(b)
				b.ok(b.db.Transaction(func(tx *gorm.DB) error { work(b, tx); return nil }))
				b.want()
				assert.EqualValues(b.t, 1, b.plugin.EventsLeftPending())
				assert.Contains(b.t, b.log.String(), "aggregate=Order events=1")
			})
			onEach(t, func(b *bench) {
				prepare(b)
				var pending *gormplugin.PendingError
				require.ErrorAs(b.t, b.db.Transaction(func(tx *gorm.DB) error { work(b, tx); return nil }), &pending)
				require.Equal(b.t, map[string]int{"Order": 1}, pending.Aggregates)
			}, gormplugin.WithStrict())
		})
	}
	fine := map[string]func(b *bench){}
	for name, test := range fine {
		fine[name] = func(b *bench) {
			prepare(b)
			test(b)
			assert.Zero(b.t, b.plugin.EventsLeftPending())
		}
	}
	runCases(t, fine)
}
