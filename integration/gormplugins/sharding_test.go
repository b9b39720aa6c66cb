package gormplugins_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/sharding"

	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/uow"
)

// Sharded has its rows in one of two tables.
type Sharded struct {
	ID      int64 `gorm:"primaryKey"`
	BuyerID int64
	Status  string
	uow.Aggregate
}

// inEitherOrder makes a case for each order in which the outbox and another plugin come to a handle.
func inEitherOrder(cases map[string]func(b *bench), name string, config gorm.Config, other func(b *bench) gorm.Plugin, test func(b *bench, db *gorm.DB)) {
	cases[name+", before the outbox"] = func(b *bench) {
		own := config
		db := b.open(&own)
		b.ok(db.Use(other(b)))
		b.use(db)
		test(b, db)
	}
	cases[name+", after the outbox"] = func(b *bench) {
		own := config
		db := b.open(&own)
		b.use(db)
		b.ok(db.Use(other(b)))
		test(b, db)
	}
}

// GORM's sharding puts a pool of its own around that of each statement, and takes each transaction that is
// no *sql.Tx for a pool. (With it GORM has no savepoints, and so no transactions in transactions.)
func TestSharding(t *testing.T) {
	t.Parallel()
	plugin := func(b *bench) gorm.Plugin {
		table := b.prefix + "shardeds"
		for _, suffix := range []string{"", "_0", "_1"} {
			b.ok(b.db.Table(table + suffix).Migrator().CreateTable(&Sharded{}))
		}
		return sharding.Register(sharding.Config{ShardingKey: "buyer_id", NumberOfShards: 2, PrimaryKeyGenerator: sharding.PKSnowflake}, table)
	}
	rows := func(b *bench, suffix string) (n int) {
		b.ok(b.db.Raw("SELECT COUNT(*) FROM " + b.prefix + "shardeds" + suffix).Scan(&n).Error)
		return n
	}
	plain := func(b *bench, db *gorm.DB) {
		require.ErrorIs(b.t, db.Transaction(func(tx *gorm.DB) error {
			b.ok(tx.Create(&Plain{}).Error)
			b.ok(tx.Create(&Plain{}).Error)
			return errRefused
		}), errRefused)
		b.ok(db.Transaction(func(tx *gorm.DB) error {
			b.ok(tx.Create(&Plain{ID: 7}).Error)
			b.ok(tx.Model(&Plain{}).Where("id = 7").Update("id", 8).Error)
			var n int64
			b.ok(tx.Model(&Plain{}).Count(&n).Error)
			assert.EqualValues(b.t, 1, n)
			return tx.Exec("DELETE FROM ? WHERE id = 100", gorm.Expr(b.prefix+"plains")).Error
		}))
		var ids []int
		b.ok(b.db.Model(&Plain{}).Pluck("id", &ids).Error)
		assert.Equal(b.t, []int{8}, ids)
	}
	sharded := func(b *bench, db *gorm.DB) {
		s := raising(&Sharded{ID: 1, BuyerID: 1}, "created")
		b.ok(db.Create(s).Error)
		assert.Equal(b.t, []int{0, 0, 1}, []int{rows(b, ""), rows(b, "_0"), rows(b, "_1")})
		b.ok(db.Transaction(func(tx *gorm.DB) error {
			b.ok(tx.Model(&Sharded{}).Where("buyer_id = ? AND id = ?", int64(1), int64(1)).Updates(raising(s, "changed")).Error)
			b.ok(tx.Create(raising(&Sharded{ID: 2, BuyerID: 2}, "another")).Error)
			raising(s, "late")
			return nil
		}))
		require.ErrorIs(b.t, db.Transaction(func(tx *gorm.DB) error {
			b.ok(tx.Create(raising(&Sharded{ID: 3, BuyerID: 1}, "refused")).Error)
			return errRefused
		}), errRefused)
		b.want("1: created", "1: changed", "2: another", "1: late")
		assert.Equal(b.t, []int{0, 1, 1}, []int{rows(b, ""), rows(b, "_0"), rows(b, "_1")})
		assert.Empty(b.t, uow.Pending(s))
	}
	cases := map[string]func(b *bench){}
	for name, config := range map[string]gorm.Config{"": {}, ", no default transaction": {SkipDefaultTransaction: true}} {
		inEitherOrder(cases, "models without events"+name, config, plugin, plain)
		inEitherOrder(cases, "sharded aggregates"+name, config, plugin, sharded)
	}
	inEitherOrder(cases, "a unit of work", gorm.Config{}, plugin, func(b *bench, db *gorm.DB) {
		done := 0
		b.ok(uow.Do(b.t.Context(), db, func(u *uow.Unit) error {
			b.ok(u.DB.Create(raising(&Sharded{ID: 1, BuyerID: 2}, "a")).Error)
			b.ok(u.AfterCommit(func() { done++ }))
			return u.Publish(Happened{"b"})
		}))
		b.want("1: a", ": b")
		assert.Equal(b.t, 1, done)
	})
	inEitherOrder(cases, "a hook that writes", gorm.Config{}, plugin, func(b *bench, db *gorm.DB) {
		b.ok(db.Create(&Hooked{ID: "1", Act: func(tx *gorm.DB) error {
			b.ok(tx.Create(&Plain{}).Error)
			return tx.Create(raising(&Sharded{ID: 1, BuyerID: 2}, "a")).Error
		}}).Error)
		b.want("1: a")
		assert.Equal(b.t, 1, rows(b, "_0"))
	})
	runCases(t, cases)
}

// hiding is a pool around another one, of which the plugin cannot see that.
type hiding struct{ inner gorm.ConnPool }

func (h *hiding) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	return h.inner.PrepareContext(ctx, query)
}

func (h *hiding) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return h.inner.ExecContext(ctx, query, args...)
}

func (h *hiding) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return h.inner.QueryContext(ctx, query, args...)
}

func (h *hiding) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return h.inner.QueryRowContext(ctx, query, args...)
}

// hider puts one around the pool of each statement.
type hider struct{}

func (hider) Name() string { return "hider" }

func (hider) Initialize(db *gorm.DB) error {
	hide := func(db *gorm.DB) { db.Statement.ConnPool = &hiding{db.Statement.ConnPool} }
	return db.Callback().Create().Before("*").Register("hider", hide)
}

func TestHiddenPools(t *testing.T) {
	t.Parallel()
	cases := map[string]func(b *bench){}
	inEitherOrder(cases, "a pool that hides the plugin's", gorm.Config{}, func(*bench) gorm.Plugin { return hider{} }, func(b *bench, db *gorm.DB) {
		b.ok(db.Create(&Plain{}).Error)
		o := order("1", "a")
		require.ErrorContains(b.t, db.Create(o).Error, "*gormplugins_test.hiding")
		b.want()
		b.pending(o, "a")
		var n int64
		b.ok(b.db.Model(&Order{}).Count(&n).Error)
		assert.Zero(b.t, n)
	})
	runCases(t, cases)
}

// showing is a pool around another one, as those of plugins that log or route statements.
type showing struct {
	name string
	gorm.ConnPool
}

// shower puts two of them around the pool of each statement.
type shower struct{}

func (shower) Name() string { return "shower" }

func (shower) Initialize(db *gorm.DB) error {
	show := func(db *gorm.DB) {
		db.Statement.ConnPool = &showing{"outer", &showing{"inner", db.Statement.ConnPool}}
	}
	all := db.Callback()
	return errors.Join(
		all.Create().Before("*").Register("shower", show), all.Update().Before("*").Register("shower", show), all.Delete().Before("*").Register("shower", show),
		all.Query().Before("*").Register("shower", show), all.Row().Before("*").Register("shower", show), all.Raw().Before("*").Register("shower", show),
	)
}

func TestVisiblePools(t *testing.T) {
	t.Parallel()
	cases := map[string]func(b *bench){}
	for name, config := range map[string]gorm.Config{"": {}, ", no default transaction": {SkipDefaultTransaction: true}, ", prepared": {PrepareStmt: true}} {
		inEitherOrder(cases, "pools around pools"+name, config, func(*bench) gorm.Plugin { return shower{} }, func(b *bench, db *gorm.DB) {
			b.scenario(db)
			b.ok(db.Create(&Hooked{ID: "1", Act: func(tx *gorm.DB) error {
				outer, ok := tx.Statement.ConnPool.(gorm.TxCommitter)
				assert.True(b.t, ok, "%T", outer)
				_, ok = gormplugin.SQLTx(tx)
				assert.True(b.t, ok)
				return tx.Create(order("9", "f")).Error
			}}).Error)
			b.want("1: a", "2: b", ": c", "3: d", "2: e", "9: f")
		})
	}
	runCases(t, cases)
}
