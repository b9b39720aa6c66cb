package gormplugin_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// asked notes for which rows room was asked for, and has none.
type asked struct{ rows []string }

func (a *asked) Reserve(_ outbox.Dialect, rows []outbox.Row) *outbox.Reservation {
	for i := range rows {
		a.rows = append(a.rows, rows[i].AggregateID+">"+rows[i].TargetBroker)
	}
	return nil
}

func (a *asked) take() []string {
	rows := a.rows
	a.rows = nil
	return rows
}

// A receiver is asked for room by commits that the plugin sees, once and for all of their rows, and
// by nothing else. What it refuses is written and told of as ever. What is delivered by way of a
// receiver is tested with the relay.
func TestReceiverIsAsked(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"by commits": func(b *bench) {
			var receiver asked
			woken := 0
			b.plugin.OnCommit(func(wakeUps []outbox.WakeUp) bool { woken += len(wakeUps); return true })
			cancel := b.plugin.HandOff(must(b.db.DB()), &receiver)
			b.ok(b.db.Create(placed("1")).Error)
			assert.Equal(b.t, []string{"1>default", "1>partner"}, receiver.take())
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create(placed("2")).Error)
				b.ok(tx.Transaction(func(tx *gorm.DB) error { return tx.Create(order("3", "a")).Error }))
				require.ErrorIs(b.t, tx.Transaction(func(tx *gorm.DB) error { b.ok(tx.Create(placed("4")).Error); return errRefused }), errRefused)
				assert.Empty(b.t, receiver.take(), "not before the end")
				return nil
			}))
			assert.Equal(b.t, []string{"2>default", "2>partner", "3>default"}, receiver.take())
			require.ErrorIs(b.t, b.db.Transaction(func(tx *gorm.DB) error { b.ok(tx.Create(placed("5")).Error); return errRefused }), errRefused)
			b.ok(b.db.Create(&Plain{}).Error)
			assert.Empty(b.t, receiver.take())
			assert.Equal(b.t, 4, woken)
			cancel()
			b.ok(b.db.Create(placed("6")).Error)
			assert.Empty(b.t, receiver.take())
			assert.Len(b.t, b.rows(), 7)
		},
		"the last one alone": func(b *bench) {
			var first, second asked
			cancelFirst, cancelSecond := b.plugin.HandOff(must(b.db.DB()), &first), b.plugin.HandOff(must(b.db.DB()), &second)
			cancelFirst()
			b.ok(b.db.Create(placed("1")).Error)
			assert.Empty(b.t, first.take())
			assert.Len(b.t, second.take(), 2)
			cancelSecond()
		},
		"the one before, when the last one has gone": func(b *bench) {
			var first, second asked
			b.plugin.HandOff(must(b.db.DB()), &first)
			b.plugin.HandOff(must(b.db.DB()), &second)()
			b.ok(b.db.Create(placed("1")).Error)
			assert.Empty(b.t, second.take())
			assert.Len(b.t, first.take(), 2)
		},
		"not on another pool": func(b *bench) {
			var receiver asked
			b.plugin.HandOff(must(b.open(&gorm.Config{}).DB()), &receiver)
			b.ok(b.db.Create(placed("1")).Error)
			assert.Empty(b.t, receiver.take(), "which may be that of another database")
		},
		"on handles of all kinds": func(b *bench) {
			var receiver asked
			b.plugin.HandOff(must(b.db.DB()), &receiver)
			b.ok(b.db.Session(&gorm.Session{PrepareStmt: true}).Create(placed("1")).Error)
			assert.Len(b.t, receiver.take(), 2)
			b.ok(b.db.Session(&gorm.Session{SkipDefaultTransaction: true}).Create(placed("2")).Error)
			assert.Len(b.t, receiver.take(), 2)
			b.ok(uow.Do(b.t.Context(), b.db, func(u *uow.Unit) error { return u.DB.Create(placed("3")).Error }))
			assert.Len(b.t, receiver.take(), 2)
		},
		"not in a transaction of the caller's own": func(b *bench) {
			var receiver asked
			b.plugin.HandOff(must(b.db.DB()), &receiver)
			sqlDB, err := b.db.DB()
			b.ok(err)
			own, err := sqlDB.BeginTx(b.t.Context(), nil)
			b.ok(err)
			db := b.db.Session(&gorm.Session{NewDB: true, Context: b.t.Context()})
			db.Statement.ConnPool = own
			o := placed("1")
			b.ok(db.Create(o).Error)
			b.ok(own.Commit())
			assert.Empty(b.t, receiver.take())
			b.ok(b.db.Save(o).Error)
			assert.Empty(b.t, receiver.take(), "the row is there already")
			b.want("OrderPlaced 1", "OrderPlaced 1>partner")
			_ = gormplugin.Notify(b.db, o)
		},
		"not for more than goes at once": func(b *bench) {
			var receiver asked
			b.plugin.HandOff(must(b.db.DB()), &receiver)
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				for n := range 501 {
					b.ok(uow.Publish(tx, OrderPlaced{OrderID: fmt.Sprint(n)}))
				}
				return nil
			}))
			assert.Empty(b.t, receiver.take())
		},
	})
}
