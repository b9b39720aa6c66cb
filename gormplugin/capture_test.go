package gormplugin_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/uow"
)

var errRefused = errors.New("refused")

func TestCapture(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(b *bench){
		"create": func(b *bench) {
			order := placed("1")
			require.NoError(b.t, b.db.Create(order).Error)
			b.want("OrderPlaced 1", "OrderPlaced 1>partner")
			assert.Empty(b.t, uow.Pending(order))
		},
		"create a slice": func(b *bench) {
			orders := []*Order{placed("1"), {ID: "2"}, placed("3")}
			require.NoError(b.t, b.db.Create(orders).Error)
			b.want("OrderPlaced 1", "OrderPlaced 1>partner", "OrderPlaced 3", "OrderPlaced 3>partner")
		},
		"create in batches": func(b *bench) {
			orders := []Order{*placed("1"), *placed("2"), *placed("3")}
			require.NoError(b.t, b.db.CreateInBatches(&orders, 2).Error)
			assert.Len(b.t, b.rows(), 6)
		},
		"save of a new aggregate with an assigned key": func(b *bench) {
			require.NoError(b.t, b.db.Save(placed("1")).Error)
			b.want("OrderPlaced 1", "OrderPlaced 1>partner")
			assert.NotContains(b.t, b.log.String(), "left pending")
		},
		"save of an existing one": func(b *bench) {
			order := &Order{ID: "1"}
			require.NoError(b.t, b.db.Create(order).Error)
			b.want()
			order.Raise(OrderShipped{"1"})
			require.NoError(b.t, b.db.Save(order).Error)
			b.want("OrderShipped 1")
		},
		"updates with a map and with a struct": func(b *bench) {
			order := &Order{ID: "1"}
			require.NoError(b.t, b.db.Create(order).Error)
			order.Raise(OrderShipped{"a"})
			require.NoError(b.t, b.db.Model(order).Updates(map[string]any{"status": "a"}).Error)
			order.Raise(OrderShipped{"b"})
			require.NoError(b.t, b.db.Model(order).Updates(Order{Status: "b"}).Error)
			order.Raise(OrderShipped{"c"})
			require.NoError(b.t, b.db.Model(order).UpdateColumn("status", "c").Error)
			b.want("OrderShipped 1", "OrderShipped 1", "OrderShipped 1")
		},
		"delete": func(b *bench) {
			order := &Order{ID: "1"}
			require.NoError(b.t, b.db.Create(order).Error)
			order.Raise(OrderShipped{"1"})
			require.NoError(b.t, b.db.Delete(order).Error)
			b.want("OrderShipped 1")
		},
		"delete by condition has no aggregate in hand": func(b *bench) {
			require.NoError(b.t, b.db.Create(placed("1")).Error)
			require.NoError(b.t, b.db.Delete(&Order{}, "id = ?", "1").Error)
			b.want("OrderPlaced 1", "OrderPlaced 1>partner")
		},
		"children through associations, once and in raise order": func(b *bench) {
			order := placed("1")
			order.Lines = []Line{{SKU: "x"}, {SKU: "y"}}
			order.Lines[1].Raise(OrderShipped{"y"})
			order.Lines[0].Raise(OrderShipped{"x"})
			require.NoError(b.t, b.db.Create(order).Error)
			b.want("OrderPlaced 1", "OrderPlaced 1>partner", "OrderShipped 2", "OrderShipped 1")
		},
		"transaction": func(b *bench) {
			require.NoError(b.t, b.db.Transaction(func(tx *gorm.DB) error {
				require.NoError(b.t, tx.Create(placed("1")).Error)
				require.NoError(b.t, uow.Publish(tx, StockReserved{"x"}))
				return tx.Create(placed("2")).Error
			}))
			b.want("OrderPlaced 1", "OrderPlaced 1>partner", "StockReserved", "StockReserved>partner", "OrderPlaced 2", "OrderPlaced 2>partner")
		},
		"raised after the save, before the commit": func(b *bench) {
			require.NoError(b.t, b.db.Transaction(func(tx *gorm.DB) error {
				order := &Order{ID: "1"}
				require.NoError(b.t, tx.Create(order).Error)
				order.Raise(OrderShipped{"1"})
				return nil
			}))
			b.want("OrderShipped 1")
		},
		"rollback keeps the events and the retry writes the same ids": func(b *bench) {
			order := placed("1")
			id := uuidOf(order)
			require.ErrorIs(b.t, b.db.Transaction(func(tx *gorm.DB) error {
				require.NoError(b.t, tx.Create(order).Error)
				return errRefused
			}), errRefused)
			b.want()
			assert.Len(b.t, uow.Pending(order), 1)
			require.NoError(b.t, b.db.Create(order).Error)
			assert.Equal(b.t, id, b.rows()[0].MessageID)
		},
		"panic rolls back": func(b *bench) {
			order := placed("1")
			assert.PanicsWithValue(b.t, "boom", func() {
				_ = b.db.Transaction(func(tx *gorm.DB) error {
					require.NoError(b.t, tx.Create(order).Error)
					panic("boom")
				})
			})
			b.want()
			assert.Len(b.t, uow.Pending(order), 1)
		},
		"begin and commit by hand": func(b *bench) {
			tx := b.db.Begin()
			require.NoError(b.t, tx.Create(placed("1")).Error)
			b.want()
			require.NoError(b.t, tx.Commit().Error)
			b.want("OrderPlaced 1", "OrderPlaced 1>partner")
		},
		"begin and rollback by hand": func(b *bench) {
			tx := b.db.Begin()
			require.NoError(b.t, tx.Create(placed("1")).Error)
			require.NoError(b.t, tx.Rollback().Error)
			b.want()
			assert.Zero(b.t, b.orders())
		},
		"nested transaction that fails": func(b *bench) {
			outer, inner := placed("1"), placed("2")
			require.NoError(b.t, b.db.Transaction(func(tx *gorm.DB) error {
				require.NoError(b.t, tx.Create(outer).Error)
				require.ErrorIs(b.t, tx.Transaction(func(tx *gorm.DB) error {
					outer.Raise(OrderShipped{"inner"})
					require.NoError(b.t, tx.Save(outer).Error)
					require.NoError(b.t, tx.Create(inner).Error)
					return errRefused
				}), errRefused)
				return nil
			}))
			b.want("OrderPlaced 1", "OrderPlaced 1>partner")
			assert.Len(b.t, uow.Pending(outer), 1)
			assert.Len(b.t, uow.Pending(inner), 1)
			require.NoError(b.t, b.db.Save(outer).Error)
			b.want("OrderPlaced 1", "OrderPlaced 1>partner", "OrderShipped 1")
		},
		"nested transaction that succeeds, three levels": func(b *bench) {
			require.NoError(b.t, b.db.Transaction(func(tx *gorm.DB) error {
				return tx.Transaction(func(tx *gorm.DB) error {
					return tx.Transaction(func(tx *gorm.DB) error { return tx.Create(placed("1")).Error })
				})
			}))
			b.want("OrderPlaced 1", "OrderPlaced 1>partner")
		},
		"savepoint by raw SQL": func(b *bench) {
			order := placed("1")
			require.NoError(b.t, b.db.Transaction(func(tx *gorm.DB) error {
				require.NoError(b.t, tx.Exec("SAVEPOINT mine").Error)
				require.NoError(b.t, tx.Create(order).Error)
				return tx.Exec("rollback to savepoint mine").Error
			}))
			b.want()
		},
		"prepared statements": func(b *bench) {
			db := b.db.Session(&gorm.Session{PrepareStmt: true})
			require.NoError(b.t, db.Transaction(func(tx *gorm.DB) error {
				require.NoError(b.t, tx.Create(placed("1")).Error)
				require.NoError(b.t, tx.Exec("SAVEPOINT mine").Error)
				require.NoError(b.t, tx.Create(placed("2")).Error)
				require.NoError(b.t, tx.Exec("ROLLBACK TO SAVEPOINT mine").Error)
				return tx.Transaction(func(tx *gorm.DB) error {
					_ = tx.Create(placed("3"))
					return nil
				})
			}))
			b.want("OrderPlaced 1", "OrderPlaced 1>partner", "OrderPlaced 3", "OrderPlaced 3>partner")
		},
		"prepared statements from the start": func(b *bench) {
			db := b.open(&gorm.Config{PrepareStmt: true})
			b.use(db)
			require.NoError(b.t, db.Create(placed("1")).Error)
			require.NoError(b.t, db.Transaction(func(tx *gorm.DB) error { return tx.Create(placed("2")).Error }))
			assert.Len(b.t, b.rows(), 4)
		},
		"no default transaction": func(b *bench) {
			db := b.db.Session(&gorm.Session{SkipDefaultTransaction: true})
			require.NoError(b.t, db.Create(placed("1")).Error)
			b.want("OrderPlaced 1", "OrderPlaced 1>partner")
			refused := placed("2")
			refused.Raise(Unregistered{})
			require.Error(b.t, db.Create(refused).Error)
			assert.EqualValues(b.t, 1, b.orders())
		},
		"no default transaction from the start": func(b *bench) {
			db := b.open(&gorm.Config{SkipDefaultTransaction: true})
			b.use(db)
			require.NoError(b.t, db.Create(placed("1")).Error)
			require.NoError(b.t, db.Delete(&Order{ID: "1"}).Error)
			b.want("OrderPlaced 1", "OrderPlaced 1>partner")
		},
		"session derived before the plugin": func(b *bench) {
			db := b.open(&gorm.Config{})
			before := db.Session(&gorm.Session{})
			b.use(db)
			require.NoError(b.t, before.Create(placed("1")).Error)
			b.want("OrderPlaced 1", "OrderPlaced 1>partner")
		},
		"one connection": func(b *bench) {
			require.NoError(b.t, b.db.Connection(func(db *gorm.DB) error { return db.Create(placed("1")).Error }))
			b.want("OrderPlaced 1", "OrderPlaced 1>partner")
		},
		"a transaction of the caller's own": func(b *bench) {
			order := placed("1")
			sqlDB, err := b.db.DB()
			require.NoError(b.t, err)
			own, err := sqlDB.BeginTx(b.t.Context(), nil)
			require.NoError(b.t, err)
			db := b.db.Session(&gorm.Session{NewDB: true, Context: b.t.Context()})
			db.Statement.ConnPool = own
			require.NoError(b.t, db.Create(order).Error)
			require.NoError(b.t, own.Commit())
			b.want("OrderPlaced 1", "OrderPlaced 1>partner")
			assert.Len(b.t, uow.Pending(order), 1, "the commit cannot be seen")
			order.Status = "again"
			require.NoError(b.t, b.db.Save(order).Error)
			b.want("OrderPlaced 1", "OrderPlaced 1>partner")
			assert.Empty(b.t, uow.Pending(order))
		},
		"an update that changes no row leaves the events pending": func(b *bench) {
			order := placed("1")
			require.NoError(b.t, b.db.Model(order).Where("status = ?", "other").Updates(map[string]any{"status": "x"}).Error)
			b.want()
			assert.Len(b.t, uow.Pending(order), 1)
			assert.Contains(b.t, b.log.String(), "events left pending")
		},
		"a conflict that does nothing": func(b *bench) {
			require.NoError(b.t, b.db.Create(&Order{ID: "1"}).Error)
			order := placed("1")
			require.NoError(b.t, b.db.Clauses(clause.OnConflict{DoNothing: true}).Create(order).Error)
			b.want()
			assert.Len(b.t, uow.Pending(order), 1)
		},
		"a batch written in part": func(b *bench) {
			require.NoError(b.t, b.db.Create(&Order{ID: "1"}).Error)
			err := b.db.Clauses(clause.OnConflict{DoNothing: true}).Create([]*Order{placed("1"), placed("2")}).Error
			var partial *gormplugin.PartialBatchError
			require.ErrorAs(b.t, err, &partial)
			assert.EqualValues(b.t, 1, partial.Affected)
			assert.EqualValues(b.t, 1, b.orders())
			b.want()
		},
		"an upsert that updates": func(b *bench) {
			require.NoError(b.t, b.db.Create(&Order{ID: "1"}).Error)
			require.NoError(b.t, b.db.Clauses(clause.OnConflict{UpdateAll: true}).Create(placed("1")).Error)
			b.want("OrderPlaced 1", "OrderPlaced 1>partner")
		},
		"a variable that is used again": func(b *bench) {
			for _, id := range []string{"1", "2", "3"} {
				require.NoError(b.t, b.db.Create(&Order{ID: id}).Error)
			}
			require.NoError(b.t, b.db.Transaction(func(tx *gorm.DB) error {
				var order Order
				for _, id := range []string{"1", "2", "3"} {
					order = Order{}
					require.NoError(b.t, tx.First(&order, "id = ?", id).Error)
					require.NoError(b.t, tx.Save(&order).Error)
					order.Raise(OrderShipped{id}) // after the save
				}
				return nil
			}))
			b.want("OrderShipped 1", "OrderShipped 2", "OrderShipped 3")
		},
		"find in batches": func(b *bench) {
			for _, id := range []string{"1", "2", "3", "4"} {
				require.NoError(b.t, b.db.Create(&Order{ID: id}).Error)
			}
			require.NoError(b.t, b.db.Transaction(func(tx *gorm.DB) error {
				var orders []Order
				return tx.FindInBatches(&orders, 2, func(*gorm.DB, int) error {
					for i := range orders {
						require.NoError(b.t, tx.Save(&orders[i]).Error)
						orders[i].Raise(OrderShipped{orders[i].ID})
					}
					return nil
				}).Error
			}))
			b.want("OrderShipped 1", "OrderShipped 2", "OrderShipped 3", "OrderShipped 4")
		},
		"the limits of the pool stay in reach": func(b *bench) {
			limits, ok := b.db.ConnPool.(interface{ SetMaxOpenConns(n int) })
			require.True(b.t, ok)
			limits.SetMaxOpenConns(7)
			sqlDB, err := b.db.DB()
			require.NoError(b.t, err)
			assert.Equal(b.t, 7, sqlDB.Stats().MaxOpenConnections)
		},
		"dry run": func(b *bench) {
			order := placed("1")
			require.NoError(b.t, b.db.Session(&gorm.Session{DryRun: true}).Create(order).Error)
			b.want()
			assert.Len(b.t, uow.Pending(order), 1)
		},
		"an explicit skip": func(b *bench) {
			order := placed("1")
			require.NoError(b.t, gormplugin.Skip(b.db).Create(order).Error)
			b.want()
			assert.Len(b.t, uow.Pending(order), 1)
		},
		"a model without events": func(b *bench) {
			require.NoError(b.t, b.db.Create(&Plain{Name: "x"}).Error)
			require.NoError(b.t, b.db.Model(&Plain{}).Where("name = ?", "x").Updates(map[string]any{"name": "y"}).Error)
			b.want()
		},
		"versions and composite keys": func(b *bench) {
			account := &Account{Bank: "b", Number: 7, Version: 4}
			require.NoError(b.t, b.db.Create(account).Error)
			account.Raise(OrderShipped{"x"})
			account.Raise(OrderShipped{"y"})
			account.Version++
			require.NoError(b.t, b.db.Save(account).Error)
			domain := internalOf(b.t, b.rows()[1])["metadata"].(map[string]any)["domain"].(map[string]any)
			assert.Equal(b.t, "5.2", domain["sequence_id"])
			assert.Equal(b.t, "ordering::account-b,7", *b.rows()[0].OrderingKey)
		},
		"the context of the request": func(b *bench) {
			ctx := envelope.WithCorrelationID(background(), "corr-1")
			require.NoError(b.t, b.db.WithContext(ctx).Create(placed("1")).Error)
			for _, r := range b.rows() {
				assert.Equal(b.t, "corr-1", *r.CorrelationID)
			}
		},
		"a commit wakes the brokers that got rows": func(b *bench) {
			var woken [][]string
			cancel := b.plugin.OnCommit(func(brokers []string) { woken = append(woken, brokers) })
			order := &Order{ID: "1"}
			order.Raise(OrderShipped{"1"})
			require.NoError(b.t, b.db.Create(order).Error)
			require.NoError(b.t, b.db.Create(placed("2")).Error)
			require.NoError(b.t, b.db.Create(&Plain{}).Error)
			cancel()
			require.NoError(b.t, b.db.Create(placed("3")).Error)
			assert.Equal(b.t, [][]string{{"default"}, {"default", "partner"}}, woken)
		},
		"the sql.Tx behind a transaction": func(b *bench) {
			require.NoError(b.t, b.db.Transaction(func(tx *gorm.DB) error {
				sqlTx, ok := gormplugin.SQLTx(tx)
				require.True(b.t, ok)
				_, err := sqlTx.ExecContext(b.t.Context(), "SELECT 1")
				return err
			}))
			_, ok := gormplugin.SQLTx(b.db)
			assert.False(b.t, ok)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, test)
		})
	}
}

func uuidOf(order *Order) string {
	recorder, _ := uow.RecorderOf(valueOf(order))
	return recorder.Events()[0].ID.String()
}
