package gormplugin_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/glebarez/sqlite"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/driver/sqlserver"
	"gorm.io/gorm"

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
	outbox.MySQL:     func(conn gorm.ConnPool) gorm.Dialector { return mysql.New(mysql.Config{Conn: conn}) },
	outbox.SQLite:    func(conn gorm.ConnPool) gorm.Dialector { return &sqlite.Dialector{Conn: conn} },
}

// pool is the handle's *sql.DB.
func (b *bench) pool() *sql.DB { return b.pools[0] }

// adopt opens a handle with the plugin on something that is open.
func (b *bench) adopt(conn gorm.ConnPool) *gorm.DB {
	b.t.Helper()
	db, err := gorm.Open(b.on(conn), b.at.config(nil))
	b.ok(err)
	b.use(db)
	return db
}

func TestHandles(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"one connection of the pool, everything": func(b *bench) {
			b.ok(b.db.Connection(func(db *gorm.DB) error {
				b.unseen(db.Session(&gorm.Session{NewDB: true}))
				return nil
			}))
		},
		"a handle on a transaction that commits": func(b *bench) {
			o := order("1", "a")
			own, err := b.pool().BeginTx(b.t.Context(), nil)
			b.ok(err)
			db := b.adopt(own)
			b.ok(db.Create(o).Error)
			b.ok(uow.Publish(db, Happened{"b"}))
			b.ok(db.Save(raising(o, "c")).Error)
			b.ok(own.Commit())
			b.want("1: a", ": b", "1: c")
			b.ok(b.db.Save(o).Error)
			b.want("1: a", ": b", "1: c")
			b.pending(o)
		},
		"a handle on a transaction cannot see its commit": func(b *bench) {
			own, err := b.pool().BeginTx(b.t.Context(), nil)
			b.ok(err)
			require.ErrorContains(b.t, b.plugin.AfterCommit(b.adopt(own), func() {}), "begun outside GORM")
			b.ok(own.Rollback())
		},
		"a session with a context derived before the plugin": func(b *bench) {
			db := b.open(&gorm.Config{})
			before := db.WithContext(context.Background())
			b.use(db)
			b.unseen(before) // such a session keeps the pool that it was derived with
			assert.Contains(b.t, b.log.String(), "gormplugin.Wrap")
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
	})
}
