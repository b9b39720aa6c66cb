package gormplugin_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/uow"
)

// scenario is what every kind of handle must get right: plain writes, a transaction with a
// savepoint that is rolled back, a late event, an event without an aggregate, and a transaction
// that fails.
func (b *bench) scenario(db *gorm.DB) {
	b.t.Helper()
	late := b.scenes(db)
	b.want("1: a", "2: b", ": c", "3: d", "2: e")
	b.pending(late)
}

// unseen is the scenario on a handle whose commits cannot be seen: events are written at the
// statement, and those that are raised after it stay.
func (b *bench) unseen(db *gorm.DB) {
	b.t.Helper()
	late := b.scenes(db)
	b.want("1: a", "2: b", ": c", "2: e")
	b.pending(late, "d")
}

func (b *bench) scenes(db *gorm.DB) (late *Order) {
	b.t.Helper()
	late = order("3")
	saved, undone, refused := order("2", "b"), order("4", "undone"), order("5", "refused")
	b.ok(db.Create(order("1", "a")).Error)
	b.ok(db.Save(saved).Error)
	b.ok(db.Transaction(func(tx *gorm.DB) error {
		b.ok(tx.Create(late).Error)
		b.ok(uow.Publish(tx, Happened{"c"}))
		b.goesBack(tx, func(tx *gorm.DB) { b.ok(tx.Create(undone).Error) })
		raising(late, "d")
		return nil
	}))
	b.goesBack(db, func(tx *gorm.DB) { b.ok(tx.Create(refused).Error) })
	b.ok(db.Delete(raising(saved, "e")).Error)
	b.pending(undone, "undone")
	b.pending(refused, "refused")
	b.pending(saved)
	assert.Equal(b.t, 2, b.orders())
	return late
}

func TestSessions(t *testing.T) {
	t.Parallel()
	cases := map[string]func(b *bench){}
	for name, session := range map[string]*gorm.Session{
		"a session that prepares, no default one":    {PrepareStmt: true, SkipDefaultTransaction: true},
		"a session without hooks":                    {SkipHooks: true},
		"a session with everything that is harmless": {PrepareStmt: true, SkipDefaultTransaction: true, QueryFields: true, FullSaveAssociations: true, Context: background()},
	} {
		cases[name] = func(b *bench) { b.scenario(b.db.Session(session)) }
	}
	for name, config := range map[string]*gorm.Config{
		"a handle that prepares few statements":  {PrepareStmt: true, PrepareStmtMaxSize: 2},
		"a handle that prepares, no default one": {PrepareStmt: true, SkipDefaultTransaction: true},
		"a handle with translated errors":        {TranslateError: true},
		"a handle with both limits":              {DefaultContextTimeout: time.Minute, DefaultTransactionTimeout: time.Minute},
		"a handle with batches":                  {CreateBatchSize: 1},
	} {
		cases[name] = func(b *bench) {
			config := *config // each case changes its own
			db := b.open(&config)
			b.use(db)
			b.scenario(db)
		}
	}
	runCases(t, cases)
}

func TestSessionsThatDiffer(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"a dry run of a savepoint": func(b *bench) {
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Exec(b.set("mine")).Error)
				b.ok(tx.Create(order("1", "a")).Error)
				return tx.Session(&gorm.Session{DryRun: true}).Exec(b.back("mine")).Error
			}))
			b.want("1: a")
		},
		"what a statement returns goes on without its transaction": func(b *bench) {
			db := b.db.Session(&gorm.Session{SkipDefaultTransaction: true})
			result := db.Create(order("1", "a"))
			b.ok(result.Error)
			b.ok(result.Session(&gorm.Session{NewDB: true}).Create(order("2", "b")).Error)
			b.ok(db.Create(order("3", "c")).Session(&gorm.Session{NewDB: true}).Exec("DELETE FROM " + b.table(&Order{})).Error)
			b.want("1: a", "2: b", "3: c")
			assert.Zero(b.t, b.orders())
			b.stored("5")
			failed := db.Create(order("5", "never"))
			require.Error(b.t, failed.Error)
			failed.Error = nil
			b.ok(failed.Session(&gorm.Session{NewDB: true}).Create(order("4", "d")).Error)
			b.want("1: a", "2: b", "3: c", "4: d")
		},
		"a dry run of everything": func(b *bench) {
			o := order("1", "a")
			everything := func(tx *gorm.DB) {
				b.ok(tx.Create(o).Error)
				b.ok(uow.Track(tx, o))
				b.ok(uow.Publish(tx, Happened{"b"}))
				b.ok(b.plugin.AfterCommit(tx, func() { b.t.Error("run") }))
				require.Error(b.t, uow.Track(tx, &Plain{}), "what is wrong is told")
				require.Error(b.t, uow.Publish(tx, Unregistered{1}))
			}
			dry := b.db.Session(&gorm.Session{DryRun: true})
			b.ok(dry.Transaction(func(tx *gorm.DB) error {
				everything(tx)
				return nil
			}))
			b.ok(uow.Do(b.t.Context(), dry, func(u *uow.Unit) error {
				b.ok(u.Track(o))
				b.ok(u.Publish(Happened{"c"}))
				return u.AfterCommit(func() { b.t.Error("run") })
			}))
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				everything(tx.Session(&gorm.Session{DryRun: true}))
				return nil
			}))
			own, db := b.own()
			require.NoError(b.t, uow.Track(db.Session(&gorm.Session{DryRun: true}), o))
			b.ok(own.Commit())
			b.want()
			b.pending(o, "a")
			assert.Zero(b.t, b.plugin.Watched())
			assert.Zero(b.t, b.plugin.EventsLeftPending(), "a dry run misses no row")
			b.ok(b.db.Create(o).Error)
			b.want("1: a")
		},
		"a transaction that takes too long": func(b *bench) {
			db := b.open(&gorm.Config{DefaultTransactionTimeout: time.Nanosecond})
			b.use(db)
			o := order("1", "a")
			require.ErrorIs(b.t, db.Transaction(func(tx *gorm.DB) error { return tx.Create(o).Error }), context.DeadlineExceeded)
			b.want()
			b.pending(o, "a")
		},
		"clauses and scopes of the statement do not reach the outbox": func(b *bench) {
			b.stored("1")
			o := b.stored("2", "a")
			scope := func(db *gorm.DB) *gorm.DB { return db.Where("status = ?", "").Limit(1) }
			b.ok(b.db.Scopes(scope).Model(o).Update("customer", "x").Error)
			b.want("2: a")
		},
	})
}
