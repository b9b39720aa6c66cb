package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/uow"
)

// Read raises in a method with a value receiver.
func (l Line) Read() Line {
	l.Raise(Happened{"read"})
	return l
}

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
		"outside a transaction": func(b *bench) {
			b.ok(b.db.Create(order("1")).Error)
			var o Order
			b.ok(b.db.First(&o).Error)
			seen := o
			seen.Raise(Happened{"seen"})
			b.ok(b.db.Save(&o).Error)
			b.want("1: seen")
		},
		"in methods with value receivers": func(b *bench) {
			b.ok(b.db.Create(&Line{ID: 7}).Error)
			var line Line
			b.ok(b.db.First(&line).Error)
			line.Read()
			b.ok(b.db.Save(&line).Error)
			b.want("7: read")
		},
		"given to gorm.G by value": func(b *bench) {
			b.ok(b.db.Create(order("1")).Error)
			o, err := gorm.G[Order](b.db).Where("id = ?", "1").First(b.t.Context())
			b.ok(err)
			o.Raise(Happened{"changed"})
			o.Status = "changed"
			_, err = gorm.G[Order](b.db).Where("id = ?", "1").Updates(b.t.Context(), o)
			b.ok(err)
			b.want("1: changed")
		},
		"preloaded, with their owner": func(b *bench) {
			b.ok(b.db.Create(&Order{ID: "1", Lines: []Line{{ID: 1}, {ID: 2}}}).Error)
			var o Order
			b.ok(b.db.Preload("Lines").First(&o).Error)
			for _, line := range o.Lines {
				line.Raise(Happened{"picked"})
			}
			b.ok(b.db.Save(&o.Lines).Error)
			b.want("1: picked", "2: picked")
		},
		"in batches": func(b *bench) {
			b.ok(b.db.Create([]*Order{order("1"), order("2"), order("3")}).Error)
			var batch []Order
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				return tx.FindInBatches(&batch, 2, func(tx *gorm.DB, _ int) error {
					for _, o := range batch {
						o.Raise(Happened{"billed"})
					}
					return tx.Session(&gorm.Session{NewDB: true}).Save(&batch).Error
				}).Error
			}))
			b.want("1: billed", "2: billed", "3: billed")
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
		"raised on the copy in a loop, saved nowhere": func(b *bench, tx *gorm.DB) {
			var orders []*Order
			b.ok(tx.Find(&orders).Error)
			for _, o := range orders {
				o.Raise(Happened{"counted"})
			}
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
	fine := map[string]func(b *bench){
		"it is saved": func(b *bench) {
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				var o Order
				b.ok(tx.First(&o).Error)
				o.Raise(Happened{"paid"})
				return tx.Save(&o).Error
			}))
			b.want("1: paid")
		},
		"it is tracked": func(b *bench) {
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				var o Order
				b.ok(tx.First(&o).Error)
				o.Raise(Happened{"paid"})
				return uow.Track(tx, &o)
			}))
			b.want("1: paid")
		},
		"its events are discarded": func(b *bench) {
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				var o Order
				b.ok(tx.First(&o).Error)
				o.Raise(Happened{"paid"})
				uow.Discard(&o)
				return nil
			}))
			b.want()
		},
		"raised in a nested transaction that was rolled back": func(b *bench) {
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				var o Order
				b.ok(tx.First(&o).Error)
				require.ErrorIs(b.t, tx.Transaction(func(*gorm.DB) error {
					o.Raise(Happened{"paid"})
					return errRefused
				}), errRefused)
				return nil
			}))
			b.want()
		},
		"raised after the transaction": func(b *bench) {
			var o Order
			b.ok(b.db.Transaction(func(tx *gorm.DB) error { return tx.First(&o).Error }))
			o.Raise(Happened{"paid"})
			b.ok(b.db.Transaction(func(tx *gorm.DB) error { return tx.Create(order("2")).Error }))
			b.want()
			b.pending(&o, "paid")
		},
		"captured by nothing, as was said": func(b *bench) {
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				var o Order
				b.ok(gormplugin.Skip(tx).First(&o).Error)
				o.Raise(Happened{"paid"})
				return nil
			}))
			b.want()
		},
	}
	for name, test := range fine {
		fine[name] = func(b *bench) {
			prepare(b)
			test(b)
			assert.Zero(b.t, b.plugin.EventsLeftPending())
		}
	}
	runCases(t, fine)
}

// A loop that loads what it changes, in one variable, and fails before any statement on it.
func TestALoopThatLoadsItsAggregate(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		b.ok(b.db.Create(order("1")).Error)
		var o Order
		for try := range 3 {
			err := b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.First(&o, "id = ?", "1").Error)
				o.Raise(Happened{"paid"})
				if try < 2 {
					return errRefused
				}
				return tx.Save(&o).Error
			})
			require.Equal(b.t, try == 2, err == nil)
		}
		b.want("1: paid")
		b.pending(&o)
	})
}
