package gormplugin_test

import (
	"crypto/rand"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// A caller who ignores the error of a batch that was written in part cannot commit it, unless a
// savepoint takes it back.
func TestPartialBatchCannotBeCommitted(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		b.stored("1")
		batch := func(tx *gorm.DB) error {
			return tx.Model([]*Order{order("1", "a"), order("2", "b")}).Update("status", "x").Error
		}
		require.ErrorAs(b.t, b.db.Transaction(func(tx *gorm.DB) error { _ = batch(tx); return nil }), new(*gormplugin.PartialBatchError))
		b.ok(b.db.Transaction(func(tx *gorm.DB) error {
			require.ErrorAs(b.t, tx.Transaction(batch), new(*gormplugin.PartialBatchError))
			return tx.Create(order("3", "c")).Error
		}))
		b.want("3: c")
		assert.Equal(b.t, 2, b.orders())
	})
}

// No aggregate of the batch had events when it was written in part. One that raises some later may be
// the one without a row.
func TestLateEventsOfAPartialBatch(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		b.stored("1")
		batch := func(tx *gorm.DB) []*Order {
			orders := []*Order{order("1"), order("2")}
			b.ok(tx.Model(orders).Update("status", rand.Text()).Error)
			return orders
		}
		require.ErrorAs(b.t, b.db.Transaction(func(tx *gorm.DB) error {
			raising(batch(tx)[0], "a")
			return nil
		}), new(*gormplugin.PartialBatchError))
		b.ok(b.db.Transaction(func(tx *gorm.DB) error {
			orders := batch(tx)
			return tx.Save(raising(orders[1], "b")).Error // now it is known
		}))
		b.want("2: b")
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
