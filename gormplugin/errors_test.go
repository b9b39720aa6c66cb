package gormplugin_test

import (
	"crypto/rand"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

func TestUnknownBrokerInTo(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		o := order("1")
		o.Raise(OrderPlaced{"1"}, envelope.To("nobody"))
		var unknown *outbox.UnknownBrokerError
		require.ErrorAs(b.t, b.db.Create(o).Error, &unknown)
		assert.Equal(b.t, "nobody", unknown.Broker)
		b.want()
	})
}

func TestStrict(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"strict: a commit that would leave events behind": func(b *bench) {
			o := order("1", "a")
			err := b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create(&Plain{Name: "x"}).Error)
				return tx.Model(o).Where("status = ?", "other").Updates(map[string]any{"status": "x"}).Error
			})
			var left *gormplugin.PendingError
			require.ErrorAs(b.t, err, &left)
			assert.Equal(b.t, map[string]int{"Order": 1}, left.Aggregates)
			assert.Zero(b.t, b.count(&Plain{}))
			b.want()
			b.pending(o, "a")
		},
		"strict: what was flushed after all, and what a savepoint took back": func(b *bench) {
			o, other := order("1", "a"), order("2", "b")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create(o).Error)
				require.ErrorIs(b.t, tx.Transaction(func(tx *gorm.DB) error {
					b.ok(tx.Model(other).Where("status = ?", "no").Updates(map[string]any{"status": "x"}).Error)
					return errRefused
				}), errRefused)
				return tx.Model(o).Where("status = ?", "no").Updates(map[string]any{"status": "x"}).Error
			}))
			b.want("1: a")
			b.pending(other, "b")
			assert.Empty(b.t, b.log.String())
		},
		"strict: a save of a new aggregate with an assigned key": func(b *bench) {
			b.ok(b.db.Save(order("1", "a")).Error)
			b.want("1: a")
		},
		"strict: a row that is gone": func(b *bench) {
			o := order("1", "a")
			var left *gormplugin.PendingError
			require.ErrorAs(b.t, b.db.Delete(o).Error, &left)
			b.want()
			b.pending(o, "a")
		},
		"strict: a row that is gone, without events": func(b *bench) {
			b.ok(b.db.Delete(order("1")).Error)
			b.want()
		},
	}, gormplugin.WithStrict())
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

// A caller who ignores the error of a batch that was written in part cannot commit it, unless a
// savepoint takes it back.
func TestPartialBatchCannotBeCommitted(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		require.NoError(b.t, b.db.Create(&Order{ID: "1"}).Error)
		batch := func(tx *gorm.DB) error {
			return tx.Model([]*Order{placed("1"), placed("2")}).Update("status", "x").Error
		}
		var partial *gormplugin.PartialBatchError
		require.ErrorAs(b.t, b.db.Transaction(func(tx *gorm.DB) error { _ = batch(tx); return nil }), &partial)
		require.NoError(b.t, b.db.Transaction(func(tx *gorm.DB) error {
			require.ErrorAs(b.t, tx.Transaction(batch), &partial)
			return tx.Create(placed("3")).Error
		}))
		b.want("OrderPlaced 3", "OrderPlaced 3>partner")
		assert.Equal(b.t, 2, b.orders())
	})
}

// Nobody had events when the batch was written in part; one that raises some later may be the one
// that was not written.
func TestLateEventsOfAPartialBatch(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		require.NoError(b.t, b.db.Create(&Order{ID: "1"}).Error)
		batch := func(tx *gorm.DB) []*Order {
			orders := []*Order{{ID: "1"}, {ID: "2"}}
			require.NoError(b.t, tx.Model(orders).Update("status", rand.Text()).Error)
			return orders
		}
		var partial *gormplugin.PartialBatchError
		require.ErrorAs(b.t, b.db.Transaction(func(tx *gorm.DB) error {
			batch(tx)[0].Raise(OrderShipped{"1"})
			return nil
		}), &partial)
		require.NoError(b.t, b.db.Transaction(func(tx *gorm.DB) error {
			orders := batch(tx)
			orders[1].Raise(OrderShipped{"2"})
			return tx.Save(orders[1]).Error // now it is known
		}))
		b.want("OrderShipped 2")
	})
}

// A tenant's search_path hides the outbox: the error says what to write.
func TestOutboxBehindASearchPath(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"a schema of the tenant": func(b *bench) {
			b.only(outbox.Postgres, "it has schemas that sessions search")
			schema := b.at.prefix + "tenant"
			b.ok(b.db.Exec("CREATE SCHEMA " + schema).Error)
			b.t.Cleanup(func() { b.ok(b.db.Exec("DROP SCHEMA " + schema + " CASCADE").Error) })
			err := b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Exec("SET LOCAL search_path TO " + schema).Error)
				return uow.Publish(tx, Happened{"x"})
			})
			require.ErrorIs(b.t, err, outbox.ErrSchema)
			require.ErrorContains(b.t, err, `where sessions set search_path, as for tenants, name its schema in outbox.table, as in "public.`+b.at.outbox()+`"`)
		},
	})
}

// bare is a pool that begins no transactions.
type bare struct{ gorm.ConnPool }

// A handle on a pool that begins no transactions can write models without events.
func TestPoolThatBeginsNoTransactions(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		db := b.open(&gorm.Config{})
		db.ConnPool = &bare{db.ConnPool}
		db.Statement.ConnPool = db.ConnPool
		b.use(db)
		b.ok(db.Create(&Plain{Name: "x"}).Error)
		err := db.Create(order("1", "a")).Error
		require.ErrorContains(b.t, err, "the handle's pool is a *gormplugin_test.bare, which begins no transactions")
		require.ErrorContains(b.t, err, "gorm.ConnPoolBeginner")
		b.want()
		assert.Zero(b.t, b.orders())
	})
}

// Rows that are still read when a transaction commits are in the way of its events on some databases. The error says so.
func TestRowsLeftOpen(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		b.ok(b.db.Create([]*Order{order("1"), order("2")}).Error)
		o := order("3", "a")
		err := b.db.Transaction(func(tx *gorm.DB) error {
			b.ok(tx.Create(o).Error)
			rows, err := tx.Model(&Order{}).Rows() //nolint:sqlclosecheck // that is the point
			b.ok(err)
			require.True(b.t, rows.Next())
			return rows.Err()
		})
		if err == nil { // SQLite
			b.want("3: a")
			return
		}
		require.ErrorContains(b.t, err, "the transaction still reads rows, of Rows() say: close them before it commits")
		b.want()
		b.pending(o, "a")
		b.ok(b.db.Create(o).Error)
		b.want("3: a")
	})
}
