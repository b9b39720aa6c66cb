package gormplugin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/internal/journal"
	"github.com/gorm-fanout/fanout/outbox"
)

// course is what SQL texts have done to a transaction, beside GORM's own Commit and Rollback. It is
// safe for concurrent use. The zero value is a transaction to which nothing has been done.
type course struct {
	mu       sync.Mutex
	ended    bool
	failed   bool     // a statement has, or may have, and that may have ended the transaction
	broken   bool     // MySQL: one has failed in a way that has ended it
	timedOut bool     // MySQL: one has waited too long for a lock, which may have
	mayEnd   bool     // MySQL: a text has run that may have ended the transaction by what is not in it
	nested   int      // SQL Server: transactions begun within the transaction
	unknown  string   // the first text that was not understood
	prepared []string // texts with transaction control that may have run as prepared statements
}

// fail notes that a statement has failed, or may have done so, which err is nil for.
func (c *course) fail(err error) {
	sure, maybe := endsTransactionOnMySQL(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed, c.broken, c.timedOut = true, c.broken || sure, c.timedOut || maybe
}

func (c *course) mayHaveEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed || c.mayEnd
}

// follow notes what a text does that has been executed; err is the result. The text may have
// been executed in part when it has several statements and there is an error, or ctx has ended.
func (c *course) follow(ctx context.Context, dialect outbox.Dialect, notes *journal.Journal, text string, err error) {
	controls, statements := readControl(dialect, text)
	if len(controls) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if statements > 1 && err == nil {
		err = ctx.Err()
	}
	if err != nil && statements == 1 && controls[0].kind < transactionEnd {
		return // it has done nothing
	}
	for _, control := range controls {
		if err != nil && control.kind < transactionEnd {
			control.kind = controlUnknown
		}
		c.apply(notes, control, text)
	}
}

func (c *course) apply(notes *journal.Journal, control control, text string) {
	switch control.kind {
	case savepointSet:
		notes.Savepoint(control.name)
	case savepointRollback:
		notes.RollbackTo(control.name)
	case savepointRelease:
		notes.Release(control.name)
	case nestedBegin:
		c.nested++
	case nestedCommit:
		c.nested--
		c.ended = c.ended || c.nested < 0
	case transactionEnd:
		c.ended = true
	case transactionMayEnd:
		c.mayEnd = true
	case controlUnknown:
		c.lose(text)
	case controlNone:
	}
}

// lose notes a text of which it is not known what it has done to the transaction.
func (c *course) lose(text string) {
	if c.unknown == "" {
		c.unknown = text
	}
}

// doubt notes a text of which it is not known when it runs, if at all: rows are read by and by.
func (c *course) doubt(dialect outbox.Dialect, text string) {
	if controls, _ := readControl(dialect, text); len(controls) > 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.lose(text)
	}
}

// maxPrepared bounds the texts that may wait for their claim. GORM claims each right after it ran.
const maxPrepared = 16

// prepare notes a text that may run as a prepared statement, of which only who runs it can tell.
func (c *course) prepare(dialect outbox.Dialect, text string) {
	controls, _ := readControl(dialect, text)
	if len(controls) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case slices.Contains(c.prepared, text):
	case len(c.prepared) == maxPrepared:
		c.lose(text)
	default:
		c.prepared = append(c.prepared, text)
	}
}

// claim reports whether a text was prepared. Who asks follows it from now on.
func (c *course) claim(text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.prepared, text)
	if i < 0 {
		return false
	}
	c.prepared = slices.Delete(c.prepared, i, i+1)
	return true
}

// refusal is why events cannot be written in the transaction, or nil. After one that was ended by a
// statement they would stand in the outbox by themselves, whatever became of the rest.
func (c *course) refusal() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := c.unknown
	if text == "" && len(c.prepared) > 0 {
		text = c.prepared[0]
	}
	switch {
	case c.ended:
		return errors.New("gormplugin: the transaction was ended by an SQL statement (COMMIT, ROLLBACK or the like), so its events cannot be written in it and stay pending: " +
			"return an error to roll back, or use tx.Commit and tx.Rollback")
	case text != "":
		return fmt.Errorf("gormplugin: it is not known what the SQL text %q has done to the transaction, so its events cannot be written in it and stay pending: "+
			"use tx.SavePoint, tx.RollbackTo and tx.Transaction, or tx.Exec with one such statement", excerpt(text))
	case c.nested > 0:
		return errors.New("gormplugin: an SQL statement has begun a transaction within the transaction (BEGIN TRANSACTION) that has not been committed, " +
			"so nothing would be committed, and its events stay pending: commit it before, or use tx.Transaction")
	default:
		return nil
	}
}

// checkOpen asks the database whether the transaction goes on after statements that have failed, or
// may have ended it. On PostgreSQL nothing is written after one that has failed. The others may have
// rolled back by themselves, and commit what comes after it statement by statement.
func (c *course) checkOpen(ctx context.Context, dialect outbox.Dialect, db gorm.ConnPool) error {
	if !c.mayHaveEnded() {
		return nil
	}
	switch dialect {
	case outbox.Postgres:
		return nil
	case outbox.SQLite:
		if _, err := db.ExecContext(ctx, "BEGIN"); err != nil {
			return nil //nolint:nilerr // in a transaction it is an error without any effect
		}
	case outbox.MySQL:
		if goesOn, err := c.goesOnOnMySQL(ctx, db); goesOn || err != nil {
			return err
		}
	case outbox.SQLServer:
		if _, err := db.ExecContext(ctx, "IF @@TRANCOUNT = 0 THROW 51000, 'There is no transaction.', 1"); err == nil {
			return nil
		}
	}
	return errors.New("gormplugin: the database ended the transaction when a statement failed (a deadlock, INSERT OR ROLLBACK, RAISE(ROLLBACK, ...), " +
		"an interrupted statement, XACT_ABORT), so its events cannot be written in it and stay pending: return the errors of statements from the transaction")
}

func (c *course) goesOnOnMySQL(ctx context.Context, db gorm.ConnPool) (bool, error) {
	c.mu.Lock()
	broken, timedOut, mayEnd := c.broken, c.timedOut, c.mayEnd
	c.mu.Unlock()
	if mayEnd && !broken {
		if err := c.askMySQL(ctx, db); err != nil {
			return false, err
		}
	}
	if broken || !timedOut {
		return !broken, nil
	}
	var rollsBack bool
	err := db.QueryRowContext(ctx, "SELECT @@innodb_rollback_on_timeout").Scan(&rollsBack)
	return !rollsBack, err
}

// askMySQL asks whether a session is in a transaction: outside of one a savepoint is gone as soon as
// it is set. It returns the refusal where it is not.
func (c *course) askMySQL(ctx context.Context, db gorm.ConnPool) error {
	if _, err := db.ExecContext(ctx, "SAVEPOINT fanout_goes_on"); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, "RELEASE SAVEPOINT fanout_goes_on")
	if err == nil || !strings.Contains(err.Error(), "Error 1305 ") { // there is no such savepoint
		return err
	}
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	return c.refusal()
}

// excerpt shortens a text for a message.
func excerpt(text string) string {
	const most = 100
	if len(text) <= most {
		return text
	}
	return text[:most] + "..." // %q makes half a letter readable
}

// queryField is where database/sql keeps the text of a prepared statement, or nil.
var queryField = func() []int { //nolint:gochecknoglobals // it is looked for once
	field, ok := reflect.TypeFor[sql.Stmt]().FieldByName("query")
	if !ok || field.Type.Kind() != reflect.String {
		return nil
	}
	return field.Index
}()

// textOf returns the text of a prepared statement. database/sql has no other way to learn it, and
// statements that were prepared outside of the transaction pass it by.
func textOf(statement *sql.Stmt) string {
	if statement == nil || queryField == nil {
		return ""
	}
	return reflect.ValueOf(statement).Elem().FieldByIndex(queryField).String()
}
