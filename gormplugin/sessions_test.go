package gormplugin_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/gormplugin"
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
		require.ErrorIs(b.t, tx.Transaction(func(tx *gorm.DB) error {
			b.ok(tx.Create(undone).Error)
			return errRefused
		}), errRefused)
		raising(late, "d")
		return nil
	}))
	require.ErrorIs(b.t, db.Transaction(func(tx *gorm.DB) error {
		b.ok(tx.Create(refused).Error)
		return errRefused
	}), errRefused)
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
		"a plain session":                            {},
		"a session with a context":                   {Context: background()},
		"a session for a new statement":              {NewDB: true},
		"a session that prepares statements":         {PrepareStmt: true},
		"a session without default transaction":      {SkipDefaultTransaction: true},
		"a session that prepares, no default one":    {PrepareStmt: true, SkipDefaultTransaction: true},
		"a session without hooks":                    {SkipHooks: true},
		"a session with batches":                     {CreateBatchSize: 1},
		"a session with all fields":                  {QueryFields: true},
		"a session that saves associations in full":  {FullSaveAssociations: true},
		"a session that allows global updates":       {AllowGlobalUpdate: true},
		"a session that passes on what is unscoped":  {PropagateUnscoped: true},
		"a session with a time of its own":           {NowFunc: func() time.Time { return time.Unix(0, 0) }},
		"a session with everything that is harmless": {PrepareStmt: true, SkipDefaultTransaction: true, QueryFields: true, FullSaveAssociations: true, Context: background()},
	} {
		cases[name] = func(b *bench) { b.scenario(b.db.Session(session)) }
	}
	for name, config := range map[string]*gorm.Config{
		"a handle that prepares statements":        {PrepareStmt: true},
		"a handle that prepares few statements":    {PrepareStmt: true, PrepareStmtMaxSize: 2},
		"a handle without default transaction":     {SkipDefaultTransaction: true},
		"a handle that prepares, no default one":   {PrepareStmt: true, SkipDefaultTransaction: true},
		"a handle with translated errors":          {TranslateError: true},
		"a handle with a limit for transactions":   {DefaultTransactionTimeout: time.Minute},
		"a handle with a limit for statements":     {DefaultContextTimeout: time.Minute},
		"a handle with both limits":                {DefaultContextTimeout: time.Minute, DefaultTransactionTimeout: time.Minute},
		"a handle with batches":                    {CreateBatchSize: 1},
		"a handle with all fields":                 {QueryFields: true},
		"a handle that saves associations in full": {FullSaveAssociations: true},
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
		"an initialized session": func(b *bench) {
			b.ok(b.db.Session(&gorm.Session{Initialized: true}).Create(order("1", "a")).Error)
			b.want("1: a")
		},
		"a transaction that goes on with prepared statements": func(b *bench) {
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create(order("1", "a")).Error)
				prepared := tx.Session(&gorm.Session{PrepareStmt: true})
				b.ok(prepared.Create(order("2", "b")).Error)
				require.ErrorIs(b.t, prepared.Transaction(func(tx *gorm.DB) error {
					b.ok(tx.Create(order("3", "c")).Error)
					return errRefused
				}), errRefused)
				b.ok(prepared.Exec(b.set("mine")).Error)
				b.ok(prepared.Create(order("4", "d")).Error)
				b.ok(prepared.Exec(b.back("mine")).Error)
				return uow.Publish(prepared, Happened{"e"})
			}))
			b.want("1: a", "2: b", ": e")
			assert.Equal(b.t, 2, b.orders())
		},
		"prepared and not, one after the other": func(b *bench) {
			b.ok(b.db.Session(&gorm.Session{PrepareStmt: true}).Create(order("1", "a")).Error)
			b.ok(b.db.Create(order("2", "b")).Error)
			b.ok(b.db.Session(&gorm.Session{PrepareStmt: true}).Create(order("3", "c")).Error)
			b.want("1: a", "2: b", "3: c")
		},
		"a dry run": func(b *bench) {
			o := order("1", "a")
			b.ok(b.db.Session(&gorm.Session{DryRun: true}).Create(o).Error)
			b.want()
			b.pending(o, "a")
			assert.Zero(b.t, b.orders())
		},
		"a dry run inside a transaction": func(b *bench) {
			o := order("1", "a")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				dry := tx.Session(&gorm.Session{DryRun: true})
				b.ok(dry.Create(o).Error)
				b.ok(dry.Save(o).Error)
				b.ok(dry.Delete(o).Error)
				b.ok(uow.Publish(dry, Happened{"dry"}))
				return tx.Create(order("2", "b")).Error
			}))
			b.want("2: b")
			b.pending(o, "a")
		},
		"a dry run of a savepoint": func(b *bench) {
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Exec(b.set("mine")).Error)
				b.ok(tx.Create(order("1", "a")).Error)
				return tx.Session(&gorm.Session{DryRun: true}).Exec(b.back("mine")).Error
			}))
			b.want("1: a")
		},
		"a handle for dry runs": func(b *bench) {
			db := b.open(&gorm.Config{DryRun: true})
			b.use(db)
			o := order("1", "a")
			b.ok(db.Create(o).Error)
			b.want()
			b.pending(o, "a")
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
			b.ok(b.db.Create(o).Error)
			b.want("1: a")
		},
		"to sql": func(b *bench) {
			o := order("1", "a")
			assert.Contains(b.t, b.db.ToSQL(func(tx *gorm.DB) *gorm.DB { return tx.Create(o) }), "INSERT INTO")
			b.want()
			b.pending(o, "a")
		},
		"an explicit skip": func(b *bench) {
			o := order("1", "a")
			b.ok(gormplugin.Skip(b.db).Create(o).Error)
			b.want()
			b.pending(o, "a")
			assert.Equal(b.t, 1, b.orders())
			b.ok(b.db.Save(o).Error)
			b.want("1: a")
		},
		"an explicit skip inside a transaction": func(b *bench) {
			o := order("1", "a")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(gormplugin.Skip(tx).Create(o).Error)
				return tx.Create(order("2", "b")).Error
			}))
			b.want("2: b")
			b.pending(o, "a")
		},
		"a transaction that takes too long": func(b *bench) {
			db := b.open(&gorm.Config{DefaultTransactionTimeout: time.Nanosecond})
			b.use(db)
			o := order("1", "a")
			require.ErrorIs(b.t, db.Transaction(func(tx *gorm.DB) error { return tx.Create(o).Error }), context.DeadlineExceeded)
			b.want()
			b.pending(o, "a")
		},
		"translated errors": func(b *bench) {
			db := b.open(&gorm.Config{TranslateError: true})
			b.use(db)
			b.ok(db.Create(order("1")).Error)
			o := order("1", "a")
			require.ErrorIs(b.t, db.Create(o).Error, gorm.ErrDuplicatedKey)
			b.pending(o, "a")
			b.want()
		},
		"translated errors leave ours alone": func(b *bench) {
			db := b.open(&gorm.Config{TranslateError: true})
			b.use(db)
			o := order("1")
			o.Raise(Unregistered{})
			var capture *gormplugin.CaptureError
			require.ErrorAs(b.t, db.Create(o).Error, &capture)
			b.want()
		},
		"clauses and scopes of the statement do not reach the outbox": func(b *bench) {
			b.stored("1")
			o := b.stored("2", "a")
			scope := func(db *gorm.DB) *gorm.DB { return db.Where("status = ?", "").Limit(1) }
			b.ok(b.db.Scopes(scope).Model(o).Update("customer", "x").Error)
			b.want("2: a")
		},
		"settings of the statement do not skip the next one": func(b *bench) {
			skip := gormplugin.Skip(b.db)
			b.ok(skip.Create(order("1", "never")).Error)
			b.ok(b.db.Create(order("2", "a")).Error)
			b.want("2: a")
		},
		"a model without events": func(b *bench) {
			b.ok(b.db.Create(&Plain{Name: "x"}).Error)
			b.ok(b.db.Model(&Plain{}).Where("name = ?", "x").Updates(map[string]any{"name": "y"}).Error)
			b.ok(b.db.Where("name = ?", "y").Delete(&Plain{}).Error)
			b.want()
			assert.Zero(b.t, b.count(&Plain{}))
		},
		"raw statements have no aggregate given": func(b *bench) {
			o := b.stored("1", "a")
			b.ok(b.db.Exec("UPDATE "+b.table(o)+" SET status = ? WHERE id = ?", "x", "1").Error)
			b.want()
			b.pending(o, "a")
			assert.Equal(b.t, "x", b.status())
		},
	})
}
