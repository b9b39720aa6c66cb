package inbox_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/glebarez/sqlite"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/uow"
)

// onFile is a place in a SQLite file with parameters of its own.
func onFile(t *testing.T, parameters string) *place {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.db")
	return newPlace(t, func() gorm.Dialector { return sqlite.Open(path + parameters) })
}

// kinds of handles on a place whose pool has one connection, so that whatever is left open on it is
// seen by what follows.
func (p *place) kinds(t *testing.T, test func(t *testing.T, db *gorm.DB)) {
	t.Helper()
	for name, config := range map[string]*gorm.Config{"plain": {}, "prepared": {PrepareStmt: true}} {
		t.Run(name, func(t *testing.T) { test(t, single(t, p.open(config))) })
	}
	t.Run("with the plugin", func(t *testing.T) { test(t, single(t, p.capturing(&gorm.Config{}))) })
	t.Run("one connection", func(t *testing.T) {
		require.NoError(t, p.open(&gorm.Config{}).Connection(func(db *gorm.DB) error {
			test(t, db)
			return nil
		}))
	})
	t.Run("one connection with the plugin", func(t *testing.T) {
		require.NoError(t, p.use(p.open(&gorm.Config{})).Connection(func(db *gorm.DB) error {
			test(t, db)
			return nil
		}))
	})
}

// SQLite leaves a transaction open whose commit a deferred foreign key refuses. It must not be
// taken for one that has committed.
func TestCommitRefused(t *testing.T) { //nolint:tparallel // the subtests share a file
	t.Parallel()
	p := onFile(t, "?_pragma=foreign_keys(1)&_pragma=journal_mode(WAL)")
	p.exec("CREATE TABLE parents (id TEXT PRIMARY KEY)")
	p.exec("CREATE TABLE children (parent TEXT REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)")
	p.kinds(t, func(t *testing.T, db *gorm.DB) {
		m := p.message()
		m.MaxAttempts = 3
		orphan := func(tx *gorm.DB) error { return tx.Exec("INSERT INTO children VALUES ('nobody')").Error }
		for attempt := range 2 {
			outcome, err := inbox.Handle(t.Context(), db, m, orphan, p.at())
			var failed *inbox.FailedError
			require.ErrorAs(t, err, &failed, "%s", outcome)
			require.ErrorContains(t, err, "FOREIGN KEY constraint failed")
			require.Equal(t, attempt+1, failed.Attempts)
			require.Equal(t, "failed", p.row(m).Status)
		}
		outcome, err := inbox.Handle(t.Context(), db, m, p.effect(m), p.at())
		require.NoError(t, err)
		require.Equal(t, inbox.Handled, outcome)
		require.Equal(t, 1, p.done(m))
	})
	require.Zero(t, p.count("SELECT count(*) FROM children"))
}

// Without WAL a commit waits for readers, and gives up while the transaction stays open. It is a
// lost race, and blocks nobody.
func TestCommitBusy(t *testing.T) { //nolint:tparallel // the subtests share a file
	t.Parallel()
	p := onFile(t, "?_pragma=busy_timeout(1)")
	p.kinds(t, func(t *testing.T, db *gorm.DB) {
		m := p.message()
		_, err := inbox.Handle(t.Context(), db, m, func(tx *gorm.DB) error {
			rows, err := p.plain().Raw("SELECT name FROM sqlite_master").Rows() // another connection
			if err != nil {
				return err
			}
			t.Cleanup(func() { _ = rows.Close() })
			rows.Next() // it holds the file from now on
			return errors.Join(rows.Err(), p.effect(m)(tx))
		}, p.at())
		require.True(t, uow.IsConflict(err), "%v", err)
	})
	for range 2 { // the connections of all kinds are fit for use, and hold nothing back
		m := p.message()
		outcome, err := p.handle(m)
		require.NoError(t, err)
		require.Equal(t, inbox.Handled, outcome)
	}
}
