package gormplugin_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/uow"
)

// purge removes all rows, as the retention does when they have been published.
func (b *bench) purge(db *gorm.DB) {
	b.t.Helper()
	b.ok(db.Exec("DELETE FROM " + b.at.outbox()).Error)
	b.want()
}

// own begins a transaction of the caller's own, and a handle on it.
func (b *bench) own() (*sql.Tx, *gorm.DB) {
	b.t.Helper()
	own, err := b.pool().BeginTx(b.t.Context(), nil)
	b.ok(err)
	db := b.db.Session(&gorm.Session{NewDB: true, Context: b.t.Context()})
	db.Statement.ConnPool = own
	return own, db
}

// Events that were written in a transaction whose end the plugin does not see are written once,
// however long their aggregate lives, and none is lost where that transaction was rolled back.
func TestOutcomesOfTransactionsThatAreNotSeenToEnd(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"saved again when its row was purged": func(b *bench) {
			o := order("1", "a")
			own, db := b.own()
			b.ok(db.Create(o).Error)
			b.ok(own.Commit())
			b.want("1: a")
			b.pending(o, "a") // nobody has looked
			b.purge(b.db)
			b.ok(b.db.Save(o).Error)
			b.want()
			b.pending(o)
		},
		"a transaction that was rolled back": func(b *bench) {
			o := order("1", "a")
			own, db := b.own()
			b.ok(db.Create(o).Error)
			b.ok(own.Rollback())
			for range 10 {
				b.plugin.LookLater()
			}
			assert.Zero(b.t, b.plugin.Watched(), "it is not waited for any longer")
			b.pending(o, "a")
			b.ok(b.db.Create(o).Error)
			b.want("1: a")
			b.pending(o)
		},
		"a savepoint that was rolled back": func(b *bench) {
			first, second := order("1", "a"), order("2", "b")
			own, db := b.own()
			b.ok(db.Create(first).Error)
			b.goesBack(db, func(tx *gorm.DB) { b.ok(tx.Create(second).Error) })
			b.ok(own.Commit())
			b.plugin.LookLater()
			b.pending(first)
			b.pending(second, "b")
			b.ok(b.db.Create(second).Error)
			b.want("1: a", "2: b")
		},
		"the caller has told": func(b *bench) {
			o := order("1", "a")
			own, db := b.own()
			b.ok(db.Create(o).Error)
			b.ok(own.Commit())
			b.ok(gormplugin.Notify(b.db, o))
			b.pending(o)
			b.plugin.LookLater()
			assert.Zero(b.t, b.plugin.Watched())
		},
		"one connection in all": func(b *bench) {
			b.pool().SetMaxOpenConns(1)
			o := order("1", "a")
			own, db := b.own()
			b.ok(db.Create(o).Error)
			b.plugin.LookLater() // waits for nobody
			b.ok(own.Commit())
			b.ok(b.db.Save(o).Error)
			b.want("1: a")
			b.pending(o)
		},
		"the pool is closed": func(b *bench) {
			o := order("1", "a")
			own, db := b.own()
			b.ok(db.Create(o).Error)
			b.ok(own.Commit())
			b.ok(b.pool().Close())
			b.plugin.LookLater()
			assert.Zero(b.t, b.plugin.Watched())
			b.pending(o, "a")
		},
	})
}

// A losing pool commits, or rolls back, and says that it does not know: as where the connection is
// lost between a COMMIT and its answer.
type losing struct {
	*sql.DB

	commits bool
	lost    int // commits to come
}

var errLost = errors.New("connection reset by peer")

func (l *losing) BeginTx(ctx context.Context, options *sql.TxOptions) (gorm.ConnPool, error) {
	begun, err := l.DB.BeginTx(ctx, options)
	return &losingTx{begun, l}, err
}

func (l *losing) GetDBConn() (*sql.DB, error) { return l.DB, nil }

type losingTx struct {
	*sql.Tx

	pool *losing
}

func (l *losingTx) Commit() error {
	if l.pool.lost == 0 {
		return l.Tx.Commit()
	}
	l.pool.lost--
	end := l.Rollback
	if l.pool.commits {
		end = l.Tx.Commit
	}
	return errors.Join(end(), errLost)
}

// lose returns a handle with a plugin of its own whose first commit gets no answer.
func (b *bench) lose(commits bool) (*gorm.DB, *gormplugin.Plugin) {
	b.t.Helper()
	db := b.openOn(b.at.dial(false), &gorm.Config{})
	sqlDB, err := db.DB()
	b.ok(err)
	db.ConnPool = &losing{sqlDB, commits, 1}
	db.Statement.ConnPool = db.ConnPool
	return db, b.use(db)
}

// After a commit whose outcome nobody knows the application may save the same aggregate again, at
// once or later: the events are written once, and it gets no error of the outbox.
func TestUnknownCommits(t *testing.T) {
	t.Parallel()
	cases := map[string]func(b *bench){}
	for name, commits := range map[string]bool{"that did commit": true, "that did not": false} {
		cases["saved again with another plugin "+name] = func(b *bench) { // which does not look
			db, _ := b.lose(commits)
			o := order("1", "a")
			require.ErrorIs(b.t, db.Create(o).Error, errLost)
			b.ok(b.db.Save(raising(o, "b")).Error)
			b.want("1: a", "1: b")
			b.pending(o)
		}
		cases["looked after "+name] = func(b *bench) {
			db, plugin := b.lose(commits)
			o := order("1", "a")
			require.ErrorIs(b.t, db.Create(o).Error, errLost)
			plugin.LookLater()
			if commits {
				b.pending(o)
				b.purge(b.db)
			}
			b.ok(db.Save(o).Error)
			if commits {
				b.want()
				return
			}
			b.want("1: a")
		}
		cases["looked after, and saved under the same version "+name] = func(b *bench) {
			db, plugin := b.lose(commits)
			account := raising(&Account{Bank: "b", Number: 1, Version: 1}, "a")
			require.ErrorIs(b.t, db.Create(account).Error, errLost)
			plugin.LookLater()
			b.ok(db.Save(raising(account, "b")).Error)
			if commits {
				assert.Equal(b.t, []any{"1.1", nil}, b.sequences(), "1.1 was there")
			} else {
				assert.Equal(b.t, []any{nil, nil}, b.sequences(), "it might have been")
			}
			account.Version = 2
			b.ok(db.Save(raising(account, "c")).Error)
			assert.Equal(b.t, "2.1", b.sequences()[2])
		}
		cases["repeated by the caller "+name] = func(b *bench) {
			db, _ := b.lose(commits)
			o := order("1")
			b.ok(uow.Do(b.t.Context(), db, func(u *uow.Unit) error {
				b.ok(u.Publish(Happened{"published"}))
				return u.DB.Save(raising(o, "a")).Error
			}, uow.WithRetry(2), uow.WithRetryIf(func(err error) bool { return errors.Is(err, errLost) })))
			assert.ElementsMatch(b.t, []string{": published", "1: a"}, b.emitted())
			b.pending(o)
		}
	}
	runCases(t, cases)
}
