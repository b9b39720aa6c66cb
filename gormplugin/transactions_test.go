package gormplugin_test

import (
	"database/sql"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/internal/wakeup"
)

func TestTransactions(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"commit after the rollback": func(b *bench) {
			o := order("1", "a")
			tx := b.db.Begin()
			b.ok(tx.Create(o).Error)
			b.ok(tx.Rollback().Error)
			require.ErrorIs(b.t, tx.Commit().Error, sql.ErrTxDone)
			b.want()
			b.pending(o, "a")
		},
		"a variable that is used again": func(b *bench) {
			for _, id := range []string{"1", "2", "3"} {
				b.stored(id)
			}
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				var o Order
				for _, id := range []string{"1", "2", "3"} {
					o = Order{}
					b.ok(tx.First(&o, "id = ?", id).Error)
					b.ok(tx.Save(&o).Error)
					raising(&o, "after the save")
				}
				return nil
			}))
			b.want("1: after the save", "2: after the save", "3: after the save")
		},
		"a variable that gets another key": func(b *bench) {
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				var o Order
				for _, id := range []string{"1", "2"} {
					o.ID = id
					b.ok(tx.Create(raising(&o, "of "+id)).Error)
					b.ok(tx.WithContext(envelope.WithCorrelationID(b.t.Context(), id)).Save(&o).Error)
				}
				raising(&o, "late")
				return nil
			}))
			b.want("1: of 1", "2: of 2", "2: late")
			assert.Equal(b.t, "1", *b.rows()[0].CorrelationID, "the last write of a row says in which context")
		},
		"a copy that becomes another aggregate": func(b *bench) {
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				original := order("1", "placed 1")
				b.ok(tx.Create(original).Error)
				copied := *original
				copied.ID = "2"
				b.ok(tx.Create(raising(&copied, "placed 2")).Error)
				return tx.Save(raising(original, "copied 1")).Error
			}))
			b.want("1: placed 1", "2: placed 2", "1: copied 1")
		},
		"a commit wakes the brokers that got rows": func(b *bench) {
			var woken [][]wakeup.WakeUp
			cancel := onCommit(b.db, func(wakeUps []wakeup.WakeUp) bool {
				woken = append(woken, slices.Clone(wakeUps))
				assert.NotEmpty(b.t, b.rows(), "a relay finds them")
				return true
			})
			b.ok(b.db.Create(order("1", "a")).Error)
			b.ok(b.db.Create(placed("2")).Error)
			b.ok(b.db.Create(&Plain{}).Error)
			refused := b.db.Begin()
			b.ok(refused.Create(order("3", "b")).Error)
			b.ok(refused.Rollback().Error)
			cancel()
			assert.Zero(b.t, b.plugin.Listeners(), "a relay that is started again and again leaves nothing behind")
			first, second := b.shards("Happened", "default"), b.shards("OrderPlaced", "default")
			assert.NotZero(b.t, first)
			assert.Equal(b.t, [][]wakeup.WakeUp{
				{{Broker: "default", Shards: first}},
				{{Broker: "default", Shards: second}, {Broker: "partner", Shards: b.shards("OrderPlaced", "partner")}},
			}, woken, "and names the shards that the database has put them in")
			b.ok(b.db.Create(placed("4")).Error)
			assert.Len(b.t, woken, 2)
		},
		"the sql.Tx behind a transaction": func(b *bench) {
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				sqlTx, ok := gormplugin.SQLTx(tx)
				require.True(b.t, ok)
				_, err := sqlTx.ExecContext(b.t.Context(), "SELECT 1")
				return err
			}))
			_, ok := gormplugin.SQLTx(b.db)
			assert.False(b.t, ok)
		},
	})
}
