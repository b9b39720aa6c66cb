package inbox_test

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/uow"
)

// Success is one statement beside the handler's, whatever else happens is as few as can be.
func TestStatementBudget(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		db, spy := p.spied(t)
		text := inbox.StatementsOf(p.db.Name(), p.table)
		m := p.message()
		handle := func(m *inbox.Message, f func(*gorm.DB) error, opts ...inbox.Option) []string {
			_, _ = inbox.Handle(t.Context(), db, m, f, append(opts, p.at())...)
			return spy.take()
		}
		got := handle(m, p.effect(m))
		require.Len(t, got, 4)
		require.Equal(t, []string{"BEGIN", text["claim"], got[2], "COMMIT"}, got)
		require.Contains(t, got[2], "INSERT INTO "+p.effects())

		lost := []string{"BEGIN", text["claim"], text["look"], "ROLLBACK"}
		if p.db.Name() == "sqlserver" {
			lost = []string{"BEGIN", text["claim"], "ROLLBACK"}
		}
		require.Equal(t, lost, handle(m, p.effect(m)), "a duplicate")

		failing := func(*gorm.DB) error { return errBoom }
		poison := p.message()
		for range 2 {
			require.Equal(t, []string{"BEGIN", text["claim"], "ROLLBACK", text["count"]}, handle(poison, failing))
		}
		require.Equal(t, lost, handle(poison, failing), "it is a dead letter")
		require.Equal(t, []string{"BEGIN", text["claim"], "ROLLBACK"}, handle(p.message(), func(*gorm.DB) error { return inbox.Unavailable(errBoom) }))

		token := p.message()
		p.expect(token)
		require.Equal(t, []string{"BEGIN", text["claim_token"], "ROLLBACK", text["count_token"]}, handle(token, failing, inbox.WithTokens()))
		require.Equal(t, []string{"BEGIN", text["claim_token"], "COMMIT"}, handle(token, func(*gorm.DB) error { return nil }, inbox.WithTokens()))
	})
}

// The handler's success is not the commit's: what becomes of the message is what the database says.
func TestCommitsThatGoWrong(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		db, spy := p.spied(t)
		handle := func(m *inbox.Message) (inbox.Outcome, error) {
			return inbox.Handle(t.Context(), db, m, p.effect(m), p.at())
		}
		t.Run("it has committed", func(t *testing.T) {
			m := p.message()
			spy.commit = func(tx *sql.Tx) error { return errors.Join(tx.Commit(), driver.ErrBadConn) }
			outcome, err := handle(m)
			require.NoError(t, err)
			require.Equal(t, inbox.Duplicate, outcome)
			require.Equal(t, "handled", p.row(m).Status)
			require.Zero(t, p.row(m).Attempts)
			require.Equal(t, 1, p.done(m))
		})
		t.Run("it has not", func(t *testing.T) {
			m := p.message()
			spy.commit = func(tx *sql.Tx) error { return errors.Join(tx.Rollback(), driver.ErrBadConn) }
			_, err := handle(m)
			var failed *inbox.FailedError
			require.ErrorAs(t, err, &failed)
			require.ErrorIs(t, err, driver.ErrBadConn)
			require.ErrorContains(t, err, "inbox: commit")
			spy.commit = (*sql.Tx).Commit
			outcome, err := handle(m)
			require.NoError(t, err)
			require.Equal(t, inbox.Handled, outcome)
			require.Equal(t, 1, p.done(m))
		})
		t.Run("a panic after it", func(t *testing.T) {
			m := p.message()
			spy.commit = func(tx *sql.Tx) error { _ = tx.Commit(); panic("a hook of the application") }
			outcome, err := handle(m)
			require.NoError(t, err)
			require.Equal(t, inbox.Duplicate, outcome)
			require.Equal(t, 1, p.done(m))
		})
		t.Run("the handler has rolled back itself", func(t *testing.T) {
			spy.commit = (*sql.Tx).Commit
			m := p.message()
			_, err := inbox.Handle(t.Context(), db, m, func(tx *gorm.DB) error { return tx.Rollback().Error }, p.at())
			require.ErrorIs(t, err, sql.ErrTxDone)
			require.Equal(t, 1, p.row(m).Attempts)
		})
	})
}

// A handler that ends its goroutine, as a failed test does, leaves no transaction behind.
func TestHandlerEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	p := on(t, "sqlite")
	db, m := single(t, p.open(&gorm.Config{})), p.message()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = inbox.Handle(t.Context(), db, m, func(tx *gorm.DB) error { _ = p.effect(m)(tx); runtime.Goexit(); return nil }, p.at())
	}()
	<-done
	require.Nil(t, p.row(m))
	outcome, err := inbox.Handle(t.Context(), db, m, p.effect(m), p.at())
	require.NoError(t, err)
	require.Equal(t, inbox.Handled, outcome)
}

// Where a failure cannot be counted the attempt does not count.
func TestCountFails(t *testing.T) {
	t.Parallel()
	p := on(t, "sqlite")
	p.exec("CREATE TRIGGER refuse BEFORE INSERT ON " + p.table + " WHEN new.status = 'failed' BEGIN SELECT raise(ABORT, 'not now'); END")
	m := p.message()
	_, err := p.handleWith(func(*gorm.DB) error { return errBoom }, m)
	require.True(t, inbox.IsUnavailable(err))
	require.ErrorIs(t, err, errBoom)
	require.ErrorContains(t, err, "not now")
	require.Nil(t, p.row(m))

	closed := p.open(&gorm.Config{})
	pool, err := closed.DB()
	require.NoError(t, err)
	require.NoError(t, pool.Close())
	_, err = inbox.Handle(t.Context(), closed, m, p.effect(m), p.at())
	require.True(t, inbox.IsUnavailable(err))
	require.ErrorContains(t, err, "inbox: begin a transaction: ")
}

// A connection that breaks in the middle rolls back, and the next attempt is the first to have an
// effect.
func TestKilledConnection(t *testing.T) {
	t.Parallel()
	p := on(t, "postgres")
	kill := func(tx *gorm.DB) {
		var pid int
		require.NoError(t, tx.Raw("SELECT pg_backend_pid()").Scan(&pid).Error)
		p.exec("SELECT pg_terminate_backend(?, 10000)", pid)
	}
	for name, f := range map[string]func(m *inbox.Message) func(tx *gorm.DB) error{
		"before a statement": func(m *inbox.Message) func(tx *gorm.DB) error {
			return func(tx *gorm.DB) error { kill(tx); return p.effect(m)(tx) }
		},
		"before the commit": func(m *inbox.Message) func(tx *gorm.DB) error {
			return func(tx *gorm.DB) error { err := p.effect(m)(tx); kill(tx); return err }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := p.message()
			_, err := p.handleWith(f(m), m)
			var failed *inbox.FailedError
			require.ErrorAs(t, err, &failed)
			require.Zero(t, p.done(m))
			require.Equal(t, "failed", p.row(m).Status)
			for _, want := range []inbox.Outcome{inbox.Handled, inbox.Duplicate} {
				outcome, err := p.handle(m)
				require.NoError(t, err)
				require.Equal(t, want, outcome)
			}
			require.Equal(t, 1, p.done(m))
		})
	}
}

// Under REPEATABLE READ and SERIALIZABLE a lost race is a conflict, which counts for nobody.
func TestIsolationLevels(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			p := on(t, "postgres")
			dsn := p.dsn + "&default_transaction_isolation=" + map[string]string{"repeatable read": "repeatable%20read", "serializable": "serializable"}[level]
			p.dial = func() gorm.Dialector { return postgres.Open(dsn) }
			db := p.open(&gorm.Config{})
			m := p.message()
			entered, leave := make(chan struct{}), make(chan struct{})
			first, second := make(chan error, 1), make(chan error, 1)
			go func() {
				_, err := inbox.Handle(t.Context(), db, m, func(tx *gorm.DB) error { close(entered); <-leave; return p.effect(m)(tx) }, p.at())
				first <- err
			}()
			<-entered
			go func() {
				_, err := inbox.Handle(t.Context(), db, m, p.effect(m), p.at())
				second <- err
			}()
			p.waits()
			close(leave)
			require.NoError(t, <-first)
			err := <-second
			require.True(t, uow.IsConflict(err), "%v", err)
			require.False(t, inbox.IsUnavailable(err))
			require.Zero(t, p.row(m).Attempts)
			outcome, err := inbox.Handle(t.Context(), db, m, p.effect(m), p.at())
			require.NoError(t, err)
			require.Equal(t, inbox.Duplicate, outcome)
			require.Equal(t, 1, p.done(m))

			// A conflict of the handler's own is not counted either.
			other := p.message()
			_, err = inbox.Handle(t.Context(), db, other, func(tx *gorm.DB) error {
				return tx.Exec("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '40001'; END $$").Error
			}, p.at())
			require.True(t, uow.IsConflict(err), "%v", err)
			require.Nil(t, p.row(other))
		})
	}
}

// A copy that fails after another one was handled is a duplicate.
func TestFailureAfterSuccess(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		for _, options := range [][]inbox.Option{nil, {inbox.WithTokens()}} {
			m := p.message()
			p.expect(m)
			db, spy := p.spied(t)
			// Between the rollback of the one and its count the other one is handled.
			spy.commit = func(tx *sql.Tx) error {
				require.NoError(t, tx.Rollback())
				outcome, err := p.handle(m, options...)
				require.NoError(t, err)
				require.Equal(t, inbox.Handled, outcome)
				return errBoom
			}
			outcome, err := inbox.Handle(t.Context(), db, m, p.effect(m), append(options, p.at())...)
			require.NoError(t, err)
			require.Equal(t, inbox.Duplicate, outcome)
			require.Equal(t, 1, p.done(m))
		}
	})
}

// A copy that fails while another one becomes a dead letter and is redriven at once is neither
// handled nor a dead letter: it must come again.
func TestFailureBeforeRedrive(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		text := inbox.StatementsOf(p.db.Name(), p.table)
		for count, options := range map[string][]inbox.Option{"count": nil, "count_token": {inbox.WithTokens()}} {
			m := p.message()
			p.expect(m)
			db, spy := p.spied(t)
			options = append(options, p.at())
			spy.before = map[string]func(){
				text[count]: func() { require.NoError(t, inbox.Reject(t.Context(), p.db, m, errBoom, options...)) },
				text["look"]: func() {
					redriven, err := inbox.RedriveAll(t.Context(), p.db, consumer, "", p.at())
					require.NoError(t, err)
					require.EqualValues(t, 1, redriven)
				},
			}
			outcome, err := inbox.Handle(t.Context(), db, m, func(*gorm.DB) error { return errBoom }, options...)
			require.True(t, inbox.IsUnavailable(err), "%s %v", outcome, err)
			require.ErrorIs(t, err, errBoom)
			require.ErrorContains(t, err, `has become "redriven" meanwhile`)
			outcome, err = inbox.Handle(t.Context(), db, m, p.effect(m), options...)
			require.NoError(t, err)
			require.Equal(t, inbox.Handled, outcome)
			require.Equal(t, 1, p.done(m))
		}
	})
}

// A copy that fails after another one was handled, and whose row the purge removes before anybody
// reads it, is no duplicate: nothing says any more that it was handled, so it must come again.
func TestFailureBeforePurge(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		text := inbox.StatementsOf(p.db.Name(), p.table)
		m := p.message()
		db, spy := p.spied(t)
		spy.before = map[string]func(){
			text["count"]: func() {
				outcome, err := p.handle(m)
				require.NoError(t, err)
				require.Equal(t, inbox.Handled, outcome)
			},
			text["look"]: func() {
				p.age("handled", 2*time.Hour)
				report, err := p.purger(inbox.PurgeConfig{Handled: time.Hour}).Purge(t.Context())
				require.NoError(t, err)
				require.Equal(t, inbox.Purged{Handled: 1}, report)
			},
		}
		outcome, err := inbox.Handle(t.Context(), db, m, func(*gorm.DB) error { return errBoom }, p.at())
		require.Empty(t, outcome, "whoever confirmed it would lose it")
		require.True(t, inbox.IsUnavailable(err), "%v", err)
		require.ErrorIs(t, err, errBoom)
		require.ErrorContains(t, err, `has become "" meanwhile`)
		require.Nil(t, p.row(m))
	})
}

// nilError is an error that cannot say what it is when it is a nil pointer, as happens to who
// returns one as an error.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// An error that panics when it is asked is a failure like any other.
func TestErrorsThatPanic(t *testing.T) {
	t.Parallel()
	p := on(t, "sqlite")
	m := p.message()
	for _, want := range []inbox.Outcome{"", inbox.DeadLettered} {
		outcome, err := p.handleWith(func(*gorm.DB) error { var missing *nilError; return missing }, m)
		require.Equal(t, want, outcome)
		require.Equal(t, want == "", err != nil)
	}
	require.Contains(t, p.row(m).LastError, "nil")
}
