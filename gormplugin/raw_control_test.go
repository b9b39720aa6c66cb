package gormplugin_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// Texts with several statements are followed statement by statement.
func TestTextsWithTransactionControl(t *testing.T) {
	t.Parallel()
	insert := func(b *bench) string { return "INSERT INTO " + b.table(&Plain{}) + " (name) VALUES ('x; COMMIT')" }
	runCases(t, map[string]func(b *bench){
		"a rollback with another statement after it": func(b *bench) {
			b.follows(b.set("mine"), b.back("mine")+"; SELECT 1")
		},
		"a rollback with another statement before it": func(b *bench) {
			b.follows(b.set("mine"), "SELECT 1; "+b.back("mine"))
		},
		"a savepoint with another statement after it": func(b *bench) {
			b.follows(b.set("mine")+"; "+insert(b), b.back("mine"))
			assert.Zero(b.t, b.count(&Plain{}))
		},
		"a savepoint after an insert": func(b *bench) {
			b.follows(insert(b)+"; "+b.set("mine"), b.back("mine"))
			assert.Equal(b.t, 1, b.count(&Plain{}))
		},
		"two savepoints in one text": func(b *bench) {
			b.follows(b.set("mine")+"; "+b.set("other"), b.back("other")+"; "+b.back("mine"))
		},
		"empty statements": func(b *bench) {
			b.not(outbox.SQLServer, "it knows none")
			b.not(outbox.MySQL, "nor does it")
			b.follows(";"+b.set("mine"), " ; ;"+b.back("mine")+";;")
		},
		"a savepoint of another name that was released with it": func(b *bench) {
			b.standard()
			b.not(outbox.MySQL, "the inner one takes the place of the outer one")
			b.follows("SAVEPOINT mine; SAVEPOINT mine; RELEASE mine", "ROLLBACK TO mine")
		},
		"a text without any": func(b *bench) {
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create(order("1", "a")).Error)
				return tx.Exec(insert(b) + "; " + insert(b) + "; SELECT '; ROLLBACK' -- ; ROLLBACK").Error
			}))
			b.want("1: a")
			assert.Equal(b.t, 2, b.count(&Plain{}))
		},
		"a trigger whose body has an END": func(b *bench) {
			b.only(outbox.SQLite, "its own spelling")
			b.at.changed.Store(true)
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create(order("1", "a")).Error)
				return tx.Exec("CREATE TRIGGER watcher AFTER INSERT ON " + b.table(&Plain{}) + " BEGIN SELECT 1; END; SELECT 1").Error
			}))
			b.want("1: a")
		},
		"a function whose body has an END": func(b *bench) {
			b.only(outbox.Postgres, "its own spelling")
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create(order("1", "a")).Error)
				return tx.Exec("CREATE FUNCTION pg_temp.one() RETURNS int BEGIN ATOMIC SELECT 1; END; DO $$ BEGIN NULL; END $$").Error
			}))
			b.want("1: a")
		},
	})
}

// follows sets a savepoint, goes back to it, and wants the events before it alone.
func (b *bench) follows(set, back string) {
	b.t.Helper()
	undone := order("2", "b")
	b.ok(b.db.Transaction(func(tx *gorm.DB) error {
		b.ok(tx.Create(order("1", "a")).Error)
		b.ok(tx.Exec(set).Error)
		b.ok(tx.Create(undone).Error)
		b.ok(tx.Exec(back).Error)
		return tx.Create(order("3", "c")).Error
	}))
	assert.Equal(b.t, 2, b.orders(), "the database has understood it")
	b.want("1: a", "3: c")
	b.pending(undone, "b")
}

// What cannot be followed makes the commit fail: no event may tell of what was undone, and none may
// be lost.
func TestTransactionControlThatCannotBeFollowed(t *testing.T) {
	t.Parallel()
	const ended, unknown = "ended by an SQL statement", "it is not known what the SQL text"
	runCases(t, map[string]func(b *bench){
		"a commit and a new transaction in one text": func(b *bench) {
			b.not(outbox.SQLServer, "its driver refuses a transaction that ends so")
			o := b.refuses(ended, func(tx *gorm.DB) error { return tx.Exec("COMMIT; BEGIN").Error })
			assert.Equal(b.t, 1, b.orders(), "it was committed, without its event")
			b.ok(b.db.Save(o).Error)
			b.want("1: a")
		},
		"a rollback and a new transaction in one text": func(b *bench) {
			b.not(outbox.SQLServer, "its driver refuses a transaction that ends so")
			b.refuses(ended, func(tx *gorm.DB) error { return tx.Exec("/* so */ ROLLBACK; BEGIN").Error })
			assert.Zero(b.t, b.orders())
		},
		"a transaction that is prepared and rolled back": func(b *bench) {
			b.only(outbox.Postgres, "the others have no statements for it")
			var most int
			b.ok(b.db.Raw("SELECT current_setting('max_prepared_transactions')").Scan(&most).Error)
			if most == 0 {
				b.t.Skip("this server is set to prepare none")
			}
			b.refuses(ended, func(tx *gorm.DB) error {
				b.ok(tx.Exec("PREPARE TRANSACTION '" + b.at.prefix + "'").Error)
				return tx.Exec("ROLLBACK PREPARED '" + b.at.prefix + "'").Error
			})
			assert.Zero(b.t, b.orders())
		},
		"a rollback that SQLite's name for a transaction hides": func(b *bench) {
			b.only(outbox.SQLite, "to the others it is a savepoint, or an error")
			b.refuses(ended, func(tx *gorm.DB) error {
				b.ok(tx.Exec("SAVEPOINT mine").Error)
				return tx.Exec("ROLLBACK TRANSACTION mine").Error
			})
		},
		"a rollback behind a byte order mark": func(b *bench) {
			b.only(outbox.SQLite, "the others refuse it")
			b.refuses(ended, func(tx *gorm.DB) error { return tx.Exec("\ufeffROLLBACK").Error })
		},
		"a rollback under a condition": func(b *bench) {
			b.only(outbox.SQLServer, "its own language")
			b.refuses(unknown, func(tx *gorm.DB) error {
				b.ok(tx.Exec("SAVE TRANSACTION mine").Error)
				return tx.Exec("IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION mine").Error
			})
		},
		"a transaction within that is not committed": func(b *bench) {
			b.only(outbox.SQLServer, "its own language")
			b.refuses("BEGIN TRANSACTION", func(tx *gorm.DB) error { return tx.Exec("BEGIN TRAN").Error })
		},
		"a text that fails in the middle": func(b *bench) {
			b.not(outbox.Postgres, "the transaction is lost then")
			b.refuses(unknown, func(tx *gorm.DB) error {
				b.ok(tx.Exec(b.set("mine")).Error)
				b.ok(tx.Create(order("2", "b")).Error)
				require.Error(b.t, tx.Exec(b.back("mine")+"; SELECT 1 FROM nowhere").Error)
				return nil
			})
		},
		"a query that goes back": func(b *bench) {
			var n []int
			b.refusesToFollow(func(tx *gorm.DB, text string) error { return tx.Raw(text).Scan(&n).Error })
		},
		"a query that goes back, prepared": func(b *bench) {
			b.preparesSavepoints()
			var n []int
			b.refusesToFollow(func(tx *gorm.DB, text string) error {
				return tx.Session(&gorm.Session{PrepareStmt: true}).Raw(text).Scan(&n).Error
			})
		},
		"rows that go back": func(b *bench) {
			b.refusesToFollow(drain)
		},
		"rows that go back, prepared": func(b *bench) {
			b.preparesSavepoints()
			b.refusesToFollow(func(tx *gorm.DB, text string) error { return drain(tx.Session(&gorm.Session{PrepareStmt: true}), text) })
		},
		"a row that goes back": func(b *bench) {
			b.refusesToFollow(func(tx *gorm.DB, text string) error {
				var n int
				_ = tx.Raw(text).Row().Scan(&n) // there is none
				return nil
			})
		},
		"a statement that the application prepares": func(b *bench) {
			b.preparesSavepoints()
			b.refusesToFollow(func(tx *gorm.DB, text string) error {
				statement, err := tx.Statement.ConnPool.PrepareContext(b.t.Context(), text)
				b.ok(err)
				defer statement.Close()
				_, err = statement.ExecContext(b.t.Context())
				return err
			})
		},
		"a statement that the application has prepared": func(b *bench) {
			b.preparesSavepoints()
			b.refusesToFollow(func(tx *gorm.DB, text string) error {
				sqlDB, err := b.db.DB()
				b.ok(err)
				statement, err := sqlDB.PrepareContext(b.t.Context(), text)
				b.ok(err)
				defer statement.Close()
				inTx, ok := tx.Statement.ConnPool.(gorm.Tx)
				require.True(b.t, ok)
				there := inTx.StmtContext(b.t.Context(), statement)
				defer there.Close()
				_, err = there.ExecContext(b.t.Context())
				return err
			})
		},
		"functions after a commit that was none": func(b *bench) {
			b.not(outbox.SQLServer, "its driver refuses a transaction that ends so")
			require.Error(b.t, uow.Do(b.t.Context(), b.db, func(u *uow.Unit) error {
				b.ok(u.AfterCommit(func() { b.t.Error("run") }))
				return u.DB.Exec("ROLLBACK").Error
			}))
		},
		"a preview of it": func(b *bench) {
			b.not(outbox.SQLServer, "its driver refuses a transaction that ends so")
			b.refuses(ended, func(tx *gorm.DB) error {
				b.ok(tx.Exec("ROLLBACK").Error)
				_, err := gormplugin.Preview(tx)
				require.ErrorContains(b.t, err, ended)
				return nil
			})
		},
		"nothing to tell": func(b *bench) {
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create(&Plain{Name: "x"}).Error)
				var n []int
				b.ok(tx.Raw(b.set("mine")).Scan(&n).Error)
				return nil
			}))
			assert.Equal(b.t, 1, b.count(&Plain{}))
		},
	})
}

// refuses wants the commit to fail, and the event to be pending and nowhere else.
func (b *bench) refuses(why string, raw func(tx *gorm.DB) error) *Order {
	b.t.Helper()
	o := order("1", "a")
	require.ErrorContains(b.t, b.db.WithContext(context.Background()).Transaction(func(tx *gorm.DB) error {
		b.ok(tx.Create(o).Error)
		return raw(tx)
	}), why)
	b.settled()
	b.want()
	b.pending(o, "a")
	return o
}

// refusesToFollow runs a rollback to a savepoint in a way in which it is not known when it runs.
func (b *bench) refusesToFollow(run func(tx *gorm.DB, text string) error) {
	b.t.Helper()
	b.refuses("it is not known what the SQL text", func(tx *gorm.DB) error {
		b.ok(tx.SavePoint("mine").Error)
		b.ok(tx.Create(order("2", "b")).Error)
		b.ok(run(tx, b.back("mine")))
		var n int64
		b.ok(tx.Model(&Order{}).Count(&n).Error)
		assert.EqualValues(b.t, 1, n, "the database has understood it")
		return nil
	})
}

// drain reads rows to their end.
func drain(tx *gorm.DB, text string) error {
	rows, err := tx.Raw(text).Rows()
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
	}
	return rows.Err()
}
