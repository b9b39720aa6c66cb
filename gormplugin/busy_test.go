package gormplugin_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/glebarez/sqlite"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
	sqlitestore "github.com/gorm-fanout/fanout/outbox/sqlite"
	"github.com/gorm-fanout/fanout/uow"
)

// withoutWAL gives SQLite without its write-ahead log, where a reader keeps a writer from
// committing.
func withoutWAL(t *testing.T, test func(b *bench)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rollback.db")
	at := place{prefix: "shop_", changed: nil, dial: func(bool) gorm.Dialector {
		return sqlite.Open(path + "?_pragma=busy_timeout(0)&_pragma=journal_mode(DELETE)&_pragma=synchronous(OFF)&_pragma=foreign_keys(1)")
	}}
	db, err := gorm.Open(at.dial(false), at.config(nil))
	require.NoError(t, err)
	require.NoError(t, migrate(db, at, func(sqlDB *sql.DB, table string) (migrator, error) { return sqlitestore.New(sqlDB, table) }))
	sqlDB, err := db.DB()
	require.NoError(t, err)
	require.NoError(t, sqlDB.Close())
	run(t, at, test, nil)
}

// read begins to read, and returns what ends it. Until then nobody can commit.
func (b *bench) read() (end func()) {
	b.t.Helper()
	reader, err := b.open(&gorm.Config{}).DB()
	b.ok(err)
	tx, err := reader.BeginTx(b.t.Context(), nil)
	b.ok(err)
	var n int
	b.ok(tx.QueryRowContext(b.t.Context(), "SELECT count(*) FROM "+b.table(&Order{})).Scan(&n))
	return func() { b.ok(tx.Rollback()) }
}

// A commit that SQLite refuses leaves the transaction open in the database. The plugin rolls it back, so
// the next user of the connection gets it clean.
func TestCommitsThatSQLiteRefuses(t *testing.T) {
	t.Parallel()
	for name, session := range map[string]gorm.Session{
		"plain": {}, "prepared": {PrepareStmt: true}, "no default transaction": {SkipDefaultTransaction: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withoutWAL(t, func(b *bench) {
				db := b.db.Session(&session)
				endRead := b.read()
				o := order("1", "a")
				require.True(b.t, uow.IsConflict(db.Create(o).Error))
				require.True(b.t, uow.IsConflict(db.Transaction(func(tx *gorm.DB) error { return tx.Create(&Plain{}).Error })), "one without events, too")
				assert.Zero(b.t, b.pool().Stats().InUse)
				b.want()
				b.pending(o, "a")
				assert.Zero(b.t, b.orders(), "its connection shows nothing of it")
				attempts := 0
				b.ok(uow.Do(b.t.Context(), db, func(u *uow.Unit) error {
					if attempts++; attempts == 3 {
						endRead()
					}
					return u.DB.Save(o).Error
				}, uow.WithRetry(3)))
				assert.Equal(b.t, 3, attempts)
				b.want("1: a")
				b.pending(o)
				assert.Zero(b.t, b.plugin.Watched(), "the plugin knows that it did not commit")
			})
		})
	}
}

// A transaction whose context ends gives its connection back, whether the application rolls it back
// or not.
func TestTransactionsOnSQLiteThatAreLeft(t *testing.T) {
	t.Parallel()
	withoutWAL(t, func(b *bench) {
		ctx, cancel := context.WithCancel(b.t.Context())
		tx := b.db.WithContext(ctx).Begin()
		b.ok(tx.Create(order("1", "a")).Error)
		cancel()
		b.settled()
		require.Error(b.t, tx.Commit().Error)
		assert.Zero(b.t, b.orders())
		canceled, cancel := context.WithCancel(b.t.Context())
		cancel()
		require.ErrorIs(b.t, b.db.WithContext(canceled).Begin().Error, context.Canceled)
		b.settled()
	})
}

// What runs after a commit may need the only connection.
func TestFunctionsAfterACommitGetTheConnection(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		b.pool().SetMaxOpenConns(1)
		ran := false
		b.ok(uow.Do(b.t.Context(), b.db, func(u *uow.Unit) error {
			b.ok(u.AfterCommit(func() {
				ran = true
				b.ok(b.db.Create(order("2", "b")).Error)
			}))
			return u.DB.Create(order("1", "a")).Error
		}))
		assert.True(b.t, ran)
		b.want("1: a", "2: b")
	})
}

// A deferred constraint that refuses the commit leaves nothing, on all databases that have such
// constraints.
func TestCommitsThatAConstraintRefuses(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		b.not(outbox.SQLServer, "it knows no deferred constraints")
		b.not(outbox.MySQL, "nor does it")
		b.at.changed.Store(true)
		db := b.db
		if b.dialect == outbox.SQLite { // where they are off by default
			db = b.openOn(sqlite.Open(filepath.Join(b.t.TempDir(), "deferred.db")+"?_pragma=foreign_keys(1)&_pragma=busy_timeout(1000)&_pragma=journal_mode(WAL)"), &gorm.Config{})
			b.ok(migrate(db, b.at, func(sqlDB *sql.DB, table string) (migrator, error) { return sqlitestore.New(sqlDB, table) }))
			b.db = db
			b.plugin = b.use(db)
		}
		refs := b.at.prefix + "refs"
		b.ok(db.Exec("CREATE TABLE " + refs + " (order_id varchar(100) REFERENCES " + b.table(&Order{}) + " (id) DEFERRABLE INITIALLY DEFERRED)").Error)
		var ran bool
		o := order("1", "a")
		unit := func(to string) error {
			return uow.Do(b.t.Context(), db, func(u *uow.Unit) error {
				b.ok(u.AfterCommit(func() { ran = true }))
				b.ok(u.Publish(Happened{"published"}))
				b.ok(u.DB.Create(o).Error)
				return u.DB.Exec("INSERT INTO "+refs+" VALUES (?)", to).Error
			})
		}
		require.Error(b.t, unit("nobody"))
		b.settled()
		assert.False(b.t, ran)
		b.want()
		b.pending(o, "a")
		assert.Zero(b.t, b.orders())
		_, err := gormplugin.Preview(db)
		require.ErrorIs(b.t, err, uow.ErrNoTransaction)

		b.ok(unit("1"))
		assert.True(b.t, ran)
		assert.ElementsMatch(b.t, []string{": published", "1: a"}, b.emitted())
		b.pending(o)
	})
}
