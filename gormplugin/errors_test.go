package gormplugin_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

func valueOf(order *Order) reflect.Value { return reflect.ValueOf(order).Elem() }

func TestRefusedEventsRollBack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		event any
		says  []string
	}{
		"unregistered": {Unregistered{1}, []string{"Unregistered", "envelope.Register["}},
		"unencodable":  {Unencodable{make(chan int)}, []string{"Unencodable", "chan"}},
		"pointer":      {&OrderPlaced{"1"}, []string{"OrderPlaced", "pointer"}},
		"oversize":     {OrderPlaced{string(make([]byte, 2<<20))}, []string{"OrderPlaced", "max_payload_bytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(b *bench) {
				order := &Order{ID: "1"}
				order.Raise(test.event)
				err := b.db.Transaction(func(tx *gorm.DB) error { return tx.Create(order).Error })
				for _, text := range test.says {
					require.ErrorContains(b.t, err, text)
				}
				b.want()
				assert.Zero(b.t, b.orders(), "the transaction rolled back")
				assert.Len(b.t, uow.Pending(order), 1, "nothing is lost")
				sqlDB, err := b.db.DB()
				require.NoError(b.t, err)
				assert.Zero(b.t, sqlDB.Stats().InUse, "no connection leaks")
			})
		})
	}
}

func TestUnknownBrokerInTo(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		order := &Order{ID: "1"}
		order.Raise(OrderPlaced{"1"}, envelope.To("nobody"))
		var unknown *outbox.UnknownBrokerError
		require.ErrorAs(b.t, b.db.Create(order).Error, &unknown)
		assert.Equal(b.t, "nobody", unknown.Broker)
	})
}

func TestStrict(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		order := placed("1")
		err := b.db.Transaction(func(tx *gorm.DB) error {
			require.NoError(b.t, tx.Create(&Plain{Name: "x"}).Error)
			return tx.Model(order).Where("status = ?", "other").Updates(map[string]any{"status": "x"}).Error
		})
		var left *gormplugin.PendingError
		require.ErrorAs(b.t, err, &left)
		assert.Equal(b.t, map[string]int{"Order": 1}, left.Aggregates)
		var plains int64
		require.NoError(b.t, b.db.Model(&Plain{}).Count(&plains).Error)
		assert.Zero(b.t, plains)
	}, gormplugin.Strict())
}

// What was flushed after all, and what a savepoint took back, is not left behind.
func TestStrictLetsCorrectTransactionsPass(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		order, other := placed("1"), placed("2")
		require.NoError(b.t, b.db.Transaction(func(tx *gorm.DB) error {
			require.NoError(b.t, tx.Create(order).Error)
			require.ErrorIs(b.t, tx.Transaction(func(tx *gorm.DB) error {
				require.NoError(b.t, tx.Model(other).Where("status = ?", "no").Updates(map[string]any{"status": "x"}).Error)
				return errRefused
			}), errRefused)
			return tx.Model(order).Where("status = ?", "no").Updates(map[string]any{"status": "x"}).Error
		}))
		b.want("OrderPlaced 1", "OrderPlaced 1>partner")
		assert.Empty(b.t, b.log.String())
	}, gormplugin.Strict())
}

func TestPublishOutsideATransaction(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		require.ErrorIs(b.t, uow.Publish(b.db, StockReserved{"x"}), uow.ErrNoTransaction)
		require.ErrorIs(b.t, uow.Publish(b.open(&gorm.Config{}), StockReserved{"x"}), uow.ErrNoPlugin)
		b.want()
	})
}

func TestDo(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		var after []string
		require.NoError(b.t, uow.Do(b.t.Context(), b.db, func(u *uow.Unit) error {
			require.NoError(b.t, u.AfterCommit(func() { after = append(after, "committed") }))
			require.NoError(b.t, u.Publish(StockReserved{"x"}))
			tracked := placed("1")
			require.NoError(b.t, u.Track(tracked))
			require.ErrorIs(b.t, uow.Do(b.t.Context(), u.DB, func(inner *uow.Unit) error {
				require.NoError(b.t, inner.Publish(StockReserved{"lost"}))
				require.NoError(b.t, inner.AfterCommit(func() { after = append(after, "undone") }))
				return errRefused
			}), errRefused)
			assert.Empty(b.t, after)
			return u.DB.Create(placed("2")).Error
		}))
		b.want("StockReserved", "StockReserved>partner", "OrderPlaced 1", "OrderPlaced 1>partner", "OrderPlaced 2", "OrderPlaced 2>partner")
		assert.Equal(b.t, []string{"committed"}, after)
	})
}

func TestUseReportsEverything(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		events := envelope.NewCatalog("ordering")
		envelope.Register[*OrderPlaced](events)
		bad := outbox.Routing{Table: "a b", External: []outbox.Route{{Broker: "default"}, {Broker: "x"}, {Broker: "x"}}}
		err := b.open(&gorm.Config{}).Use(gormplugin.New(events, bad))
		for _, text := range []string{"pointer", `"a b"`, "also listed as external", "duplicate external broker"} {
			require.ErrorContains(b.t, err, text)
		}
	})
}

// Without the table the first commit says what to do, and rolls back.
func TestMissingTable(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		require.NoError(b.t, b.db.Exec("ALTER TABLE outbox_messages RENAME TO elsewhere").Error)
		err := b.db.Create(placed("1")).Error
		require.ErrorIs(b.t, err, outbox.ErrSchema)
		require.ErrorContains(b.t, err, "fanout migrate")
		assert.Zero(b.t, b.orders())
	})
}

// A caller who ignores the error of a batch that was written in part cannot commit it, unless a savepoint takes it back.
func TestPartialBatchCannotBeCommitted(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		require.NoError(b.t, b.db.Create(&Order{ID: "1"}).Error)
		batch := func(tx *gorm.DB) error {
			return tx.Clauses(clause.OnConflict{DoNothing: true}).Create([]*Order{placed("1"), placed("2")}).Error
		}
		var partial *gormplugin.PartialBatchError
		require.ErrorAs(b.t, b.db.Transaction(func(tx *gorm.DB) error { _ = batch(tx); return nil }), &partial)
		require.NoError(b.t, b.db.Transaction(func(tx *gorm.DB) error {
			require.ErrorAs(b.t, tx.Transaction(batch), &partial)
			return tx.Create(placed("3")).Error
		}))
		b.want("OrderPlaced 3", "OrderPlaced 3>partner")
		assert.EqualValues(b.t, 2, b.orders())
	})
}
