package gormplugin_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// What is asked of a transaction that has ended, by what runs after its commit or by whoever kept
// the handle.
func TestTransactionsThatHaveEnded(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"a function after the commit ends the transaction once more": func(b *bench) {
			tx := b.db.Begin()
			b.ok(tx.Create(order("1", "a")).Error)
			b.ok(b.plugin.AfterCommit(tx, func() {
				assert.ErrorIs(b.t, tx.Session(&gorm.Session{}).Rollback().Error, sql.ErrTxDone)
				assert.ErrorIs(b.t, tx.Session(&gorm.Session{}).Commit().Error, sql.ErrTxDone)
			}))
			b.ok(tx.Commit().Error)
			b.want("1: a")
		},
		"everything after the commit": func(b *bench) {
			tx := b.db.Begin()
			b.ok(tx.Commit().Error)
			b.nothingGoesInto(tx)
		},
		"a statement that rolls back":                          func(b *bench) { b.endedBy(b.db, "ROLLBACK") },
		"a statement that commits":                             func(b *bench) { b.endedBy(b.db, "COMMIT") },
		"a statement that rolls back, where they are prepared": func(b *bench) { b.endedBy(b.db.Session(&gorm.Session{PrepareStmt: true}), "rollback;") },
		"a function after the commit panics": func(b *bench) {
			var ran []string
			o := order("1", "a")
			require.PanicsWithValue(b.t, "boom", func() {
				_ = uow.Do(b.t.Context(), b.db, func(u *uow.Unit) error {
					b.ok(u.AfterCommit(func() { ran = append(ran, "first") }))
					b.ok(u.AfterCommit(func() { panic("boom") }))
					b.ok(u.AfterCommit(func() { ran = append(ran, "third") }))
					return u.DB.Create(o).Error
				})
			})
			assert.Equal(b.t, []string{"first", "third"}, ran)
			b.settled()
			b.want("1: a")
			b.pending(o)
		},
	})
}

// Some errors end the transaction in the database, and what comes after them would be committed
// statement by statement.
func TestErrorsThatEndTheTransaction(t *testing.T) {
	t.Parallel()
	spoil := map[string]func(b *bench, tx *gorm.DB) error{
		"a conflict that rolls back": func(b *bench, tx *gorm.DB) error {
			return tx.Exec("INSERT OR ROLLBACK INTO " + b.table(&Order{}) + " (id) VALUES ('there')").Error
		},
		"a conflict that rolls back, in a statement of GORM's": func(_ *bench, tx *gorm.DB) error {
			return tx.Clauses(clause.Insert{Modifier: "OR ROLLBACK"}).Create(order("there", "never")).Error
		},
		"a trigger that rolls back": func(b *bench, tx *gorm.DB) error {
			b.ok(tx.Exec("CREATE TEMP TRIGGER watcher BEFORE DELETE ON " + b.table(&Order{}) + " BEGIN SELECT RAISE(ROLLBACK, 'no'); END").Error)
			return tx.Delete(&Order{}, "id = 'there'").Error
		},
	}
	cases := map[string]func(b *bench){}
	for name, spoil := range spoil {
		for suffix, session := range map[string]gorm.Session{"": {}, ", prepared": {PrepareStmt: true}} {
			cases[name+suffix] = func(b *bench) {
				b.only(outbox.SQLite, "PostgreSQL refuses everything after an error, and SQL Server has other spellings")
				b.stored("there")
				o := order("1", "a")
				require.ErrorContains(b.t, b.db.Session(&session).Transaction(func(tx *gorm.DB) error {
					b.ok(tx.Create(o).Error)
					require.Error(b.t, spoil(b, tx))
					return nil // as if nothing had happened
				}), "ended")
				b.settled()
				b.want()
				b.pending(o, "a")
				assert.Equal(b.t, 1, b.orders())
				b.ok(b.db.Create(o).Error)
				b.want("1: a")
			}
		}
	}
	cases["an error that does not"] = func(b *bench) {
		b.not(outbox.Postgres, "it refuses everything after an error")
		b.stored("there")
		b.ok(b.db.Transaction(func(tx *gorm.DB) error {
			b.ok(tx.Create(order("1", "a")).Error)
			require.Error(b.t, tx.Create(order("there", "b")).Error)
			require.Error(b.t, tx.Exec("DELETE FROM nowhere").Error)
			return nil
		}))
		b.want("1: a")
	}
	runCases(t, cases)
}

// nothingGoesInto wants an error for all that would be lost without a word in a transaction that
// has ended.
func (b *bench) nothingGoesInto(tx *gorm.DB) {
	b.t.Helper()
	o := order("1", "a")
	require.ErrorIs(b.t, uow.Publish(tx, Happened{"late"}), uow.ErrNoTransaction)
	require.ErrorIs(b.t, uow.Track(tx, o), uow.ErrNoTransaction)
	require.ErrorIs(b.t, b.plugin.AfterCommit(tx, func() { b.t.Error("run") }), uow.ErrNoTransaction)
	require.Error(b.t, tx.Session(&gorm.Session{}).Create(o).Error)
	b.pending(o, "a")
	b.want()
}

// endedBy ends a transaction by a statement. Its events must not be written outside of it.
func (b *bench) endedBy(db *gorm.DB, statement string) {
	b.t.Helper()
	b.not(outbox.SQLServer, "its driver refuses a transaction that ends so")
	o := order("1", "a")
	require.ErrorContains(b.t, db.Transaction(func(tx *gorm.DB) error {
		b.ok(tx.Create(o).Error)
		return tx.Exec(statement).Error
	}), "ended by an SQL statement")
	b.want()
	b.pending(o, "a")
}
