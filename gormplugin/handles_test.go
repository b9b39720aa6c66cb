package gormplugin_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/glebarez/sqlite"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/driver/sqlserver"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/internal/capture"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// on is a dialector for a connection that is there already.
func (b *bench) on(conn gorm.ConnPool) gorm.Dialector {
	return dialectors[b.dialect](conn)
}

var dialectors = map[outbox.Dialect]func(conn gorm.ConnPool) gorm.Dialector{
	outbox.Postgres:  func(conn gorm.ConnPool) gorm.Dialector { return postgres.New(postgres.Config{Conn: conn}) },
	outbox.SQLServer: func(conn gorm.ConnPool) gorm.Dialector { return sqlserver.New(sqlserver.Config{Conn: conn}) },
	outbox.SQLite:    func(conn gorm.ConnPool) gorm.Dialector { return &sqlite.Dialector{Conn: conn} },
}

// pool is the handle's *sql.DB.
func (b *bench) pool() *sql.DB { return b.pools[0] }

// onConn gives a test one connection of the pool.
func (b *bench) onConn(test func(conn *sql.Conn)) {
	b.t.Helper()
	conn, err := b.pool().Conn(b.t.Context())
	b.ok(err)
	defer func() { b.ok(conn.Close()) }()
	test(conn)
}

// adopt opens a handle with the plugin on something that is open.
func (b *bench) adopt(conn gorm.ConnPool, config *gorm.Config) *gorm.DB {
	b.t.Helper()
	db, err := gorm.Open(b.on(conn), b.at.config(config))
	b.ok(err)
	b.use(db)
	return db
}

func TestHandles(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"a handle on an open pool": func(b *bench) { b.scenario(b.adopt(b.pool(), nil)) },
		"a handle on an open pool that prepares statements": func(b *bench) {
			b.scenario(b.adopt(b.pool(), &gorm.Config{PrepareStmt: true}))
		},
		"a handle on one connection": func(b *bench) { b.onConn(func(conn *sql.Conn) { b.scenario(b.adopt(conn, nil)) }) },
		"one connection of the pool": func(b *bench) {
			b.ok(b.db.Connection(func(db *gorm.DB) error { return db.Create(order("1", "a")).Error }))
			b.want("1: a")
		},
		"one connection of the pool, everything": func(b *bench) {
			b.ok(b.db.Connection(func(db *gorm.DB) error {
				b.unseen(db.Session(&gorm.Session{NewDB: true}))
				return nil
			}))
		},
		"one connection and a transaction on it": func(b *bench) {
			o := order("1", "a")
			b.ok(b.db.Connection(func(db *gorm.DB) error {
				return db.Transaction(func(tx *gorm.DB) error { return tx.Create(o).Error })
			}))
			b.want("1: a")
			b.ok(b.db.Save(raising(o, "b")).Error)
			b.want("1: a", "1: b")
			b.pending(o)
		},
		"one connection and a transaction on it that fails": func(b *bench) {
			o := order("1", "a")
			require.ErrorIs(b.t, b.db.Connection(func(db *gorm.DB) error {
				return db.Transaction(func(tx *gorm.DB) error {
					b.ok(tx.Create(o).Error)
					return errRefused
				})
			}), errRefused)
			b.want()
			b.pending(o, "a")
			b.ok(b.db.Create(o).Error)
			b.want("1: a")
		},
		"one connection without a default transaction": func(b *bench) {
			db := b.db.Session(&gorm.Session{SkipDefaultTransaction: true})
			b.ok(db.Connection(func(db *gorm.DB) error { return db.Create(order("1", "a")).Error }))
			b.want("1: a")
		},
		"a unit of work on one connection": func(b *bench) {
			b.ok(b.db.Connection(func(db *gorm.DB) error {
				return uow.Do(b.t.Context(), db, func(u *uow.Unit) error { return u.DB.Create(order("1", "a")).Error })
			}))
			b.want("1: a")
		},
		"a unit of work on one connection, with a function for after the commit": func(b *bench) {
			var after []string
			o := order("1", "a")
			b.ok(b.db.Connection(func(db *gorm.DB) error {
				return uow.Do(b.t.Context(), db, func(u *uow.Unit) error {
					b.ok(u.DB.Create(o).Error)
					raising(o, "late")
					return u.AfterCommit(func() { after = append(after, "committed") })
				})
			}))
			assert.Equal(b.t, []string{"committed"}, after)
			b.want("1: a", "1: late")
			b.pending(o)
		},
		"a unit of work on one connection that fails": func(b *bench) {
			o := order("1", "a")
			require.ErrorIs(b.t, b.db.Connection(func(db *gorm.DB) error {
				return uow.Do(b.t.Context(), db, func(u *uow.Unit) error {
					b.ok(u.DB.Create(o).Error)
					return errRefused
				})
			}), errRefused)
			b.want()
			b.pending(o, "a")
		},
		"a transaction of the caller's own": func(b *bench) {
			o := order("1", "a")
			own, err := b.pool().BeginTx(b.t.Context(), nil)
			b.ok(err)
			db := b.db.Session(&gorm.Session{NewDB: true, Context: b.t.Context()})
			db.Statement.ConnPool = own
			b.ok(db.Create(o).Error)
			b.ok(own.Commit())
			b.want("1: a")
			b.pending(o, "a") // the commit cannot be seen
			b.ok(b.db.Save(o).Error)
			b.want("1: a")
			b.pending(o)
		},
		"a handle on a transaction that commits": func(b *bench) {
			o := order("1", "a")
			own, err := b.pool().BeginTx(b.t.Context(), nil)
			b.ok(err)
			db := b.adopt(own, nil)
			b.ok(db.Create(o).Error)
			b.ok(uow.Publish(db, Happened{"b"}))
			b.ok(db.Save(raising(o, "c")).Error)
			b.ok(own.Commit())
			b.want("1: a", ": b", "1: c")
			b.ok(b.db.Save(o).Error)
			b.want("1: a", ": b", "1: c")
			b.pending(o)
		},
		"a handle on a transaction that rolls back": func(b *bench) {
			o := order("1", "a")
			id := idOf(o)
			own, err := b.pool().BeginTx(b.t.Context(), nil)
			b.ok(err)
			b.ok(b.adopt(own, nil).Create(o).Error)
			b.ok(own.Rollback())
			b.want()
			b.pending(o, "a")
			b.ok(b.db.Create(o).Error)
			b.want("1: a")
			assert.Equal(b.t, id, b.rows()[0].MessageID)
		},
		"a handle on a transaction cannot see its commit": func(b *bench) {
			own, err := b.pool().BeginTx(b.t.Context(), nil)
			b.ok(err)
			require.ErrorContains(b.t, b.plugin.AfterCommit(b.adopt(own, nil), func() {}), "begun outside GORM")
			b.ok(own.Rollback())
		},
		"the plugin in the configuration": func(b *bench) {
			db := b.open(&gorm.Config{Plugins: map[string]gorm.Plugin{capture.PluginName: b.newPlugin()}})
			b.scenario(db)
		},
		"the plugin in the configuration of a handle that prepares statements": func(b *bench) {
			db := b.open(&gorm.Config{PrepareStmt: true, Plugins: map[string]gorm.Plugin{capture.PluginName: b.newPlugin()}})
			b.scenario(db)
		},
		"used twice": func(b *bench) {
			require.ErrorIs(b.t, b.db.Use(b.newPlugin()), gorm.ErrRegistered)
			b.ok(b.db.Create(placed("1")).Error)
			b.want("OrderPlaced 1", "OrderPlaced 1>partner")
		},
		"initialized twice": func(b *bench) {
			b.ok(b.plugin.Initialize(b.db))
			b.scenario(b.db)
		},
		"one plugin on two handles": func(b *bench) {
			db := b.open(&gorm.Config{})
			b.ok(db.Use(b.plugin))
			b.ok(db.Create(order("9", "other")).Error)
			b.ok(b.db.Create(order("8", "first")).Error)
			b.want("9: other", "8: first")
		},
		"two handles, a plugin each, one aggregate": func(b *bench) {
			db := b.open(&gorm.Config{})
			b.use(db)
			o := order("1", "a")
			b.ok(b.db.Create(o).Error)
			b.ok(db.Save(raising(o, "b")).Error)
			b.want("1: a", "1: b")
			b.pending(o)
		},
		"a handle without the plugin": func(b *bench) {
			o := order("1", "a")
			b.ok(b.open(&gorm.Config{}).Create(o).Error)
			b.want()
			b.pending(o, "a")
		},
		"a session derived before the plugin": func(b *bench) {
			db := b.open(&gorm.Config{})
			before := db.Session(&gorm.Session{})
			b.use(db)
			b.scenario(before)
		},
		"a session with a context derived before the plugin": func(b *bench) {
			db := b.open(&gorm.Config{})
			before := db.WithContext(context.Background())
			b.use(db)
			b.unseen(before) // such a session keeps the pool that it was derived with
			assert.Contains(b.t, b.log.String(), "gormplugin.Wrap")
		},
		"a session with a context derived before the plugin, and wrapped": func(b *bench) {
			db := b.open(&gorm.Config{})
			before := db.WithContext(context.Background())
			b.use(db)
			wrapped, err := gormplugin.Wrap(before)
			b.ok(err)
			b.scenario(wrapped)
		},
		"a session that prepares statements derived before the plugin": func(b *bench) {
			db := b.open(&gorm.Config{})
			before := db.Session(&gorm.Session{PrepareStmt: true})
			b.use(db)
			b.unseen(before) // such a session keeps the pool that it was derived with
			assert.Contains(b.t, b.log.String(), "gormplugin.Wrap")
		},
		"a session that prepares statements derived before the plugin, and wrapped": func(b *bench) {
			db := b.open(&gorm.Config{})
			before := db.Session(&gorm.Session{PrepareStmt: true})
			b.use(db)
			wrapped, err := gormplugin.Wrap(before)
			b.ok(err)
			b.scenario(wrapped)
		},
		"prepared statements used before the plugin and after": func(b *bench) {
			db := b.open(&gorm.Config{})
			b.ok(db.Session(&gorm.Session{PrepareStmt: true}).Create(&Plain{}).Error)
			b.use(db)
			b.scenario(db.Session(&gorm.Session{PrepareStmt: true}))
		},
		"a transaction begun before the plugin": func(b *bench) {
			db := b.open(&gorm.Config{})
			tx := db.Begin()
			b.use(db)
			o := order("1", "a")
			b.ok(tx.Create(o).Error)
			b.ok(tx.Commit().Error)
			b.want("1: a")
			b.ok(db.Save(o).Error)
			b.want("1: a")
			b.pending(o)
		},
		"the limits of the pool stay in reach": func(b *bench) {
			limits, ok := b.db.ConnPool.(interface{ SetMaxOpenConns(n int) })
			require.True(b.t, ok)
			limits.SetMaxOpenConns(7)
			assert.Equal(b.t, 7, b.pool().Stats().MaxOpenConnections)
			b.scenario(b.db)
		},
		"one connection in all": func(b *bench) {
			b.pool().SetMaxOpenConns(1)
			b.scenario(b.db)
		},
	})
}
